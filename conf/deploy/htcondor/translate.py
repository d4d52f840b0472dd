#!/usr/bin/env python3
"""<KEYWORD>_HOOK_TRANSLATE_JOB: let a job wait for the site whose caches hold its input, but not for ever.

Standard input: the route, a line of dashes, the job's ad. Standard output: the job's ad.
"""

from cachecast_hook import give, given, read_ads, scored, write_ad

# By time() alone a job is released, also when nobody runs the hooks any more.
FREE = "CachecastReleased || time() >= CachecastReleaseAt || TARGET.CachecastSite =?= MY.CachecastBest"
PREFERENCE = "ifThenElse(TARGET.CachecastSite =?= MY.CachecastBest, 1, 0)"

job = read_ads(given())[-1]
ranking = scored(job)
if ranking:
    requirements = job.get("Requirements", "true")
    job |= ranking | {"Requirements": f"({requirements}) && ({FREE})", "Rank": PREFERENCE}
give(write_ad(job))
