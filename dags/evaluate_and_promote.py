"""Replay the service over past days, and promote the candidate if its plans save significantly more.

**Does:** `cachecast evaluate` replays the last days as the service would have served them, and compares with
LRU, the counting baseline and the champion. `cachecast promote` makes the candidate the champion if the lower
bound of the WAN bytes saved per day is above 0; otherwise it records the reason. The order of eviction is
judged apart, against LRU and S3-FIFO: stewards of caches may follow it if it won.

**Runs:** by Airflow, when `train_models` has a new candidate.

**Safe to repeat:** yes; the same days give the same decision.

**When it fails:** the champion continues to serve. A refused candidate is not a failure. `cachecast promote
--why` shows the reason; `cachecast promote --rollback` undoes a promotion.

**Owner:** the operators of the caches.
"""

from dags.moments import WHOLE_DAYS
from dags.steps import CANDIDATE, CHAMPION, LONG, after, days_param, pipeline, spark_step, step
from jobs.ground.settings.sections import scheduling

days = days_param(scheduling().test_days, "days that are replayed, until the last whole one")

with pipeline(
    "evaluate_and_promote", __doc__, schedule=after(CANDIDATE), is_long=True, params={"days": days}
):
    evaluate = spark_step("evaluate", WHOLE_DAYS, pool=LONG)
    evaluate >> step("promote", {}, outlets=[CHAMPION])
