"""Pulls of a day that fall short, and a cache that stops as it is pushed to."""

from __future__ import annotations

import time

from airflow_site import TRACES, WITHIN_S, Site, check
from commands import awaited, held

from features.common.times import as_of_label
from features.schema import PLANS, RECEIPTS
from jobs.local_site.local.site import CACHE


def pushed(site: Site, key: str) -> None:
    """Check that the plan of a decision time was carried out as a whole."""
    plan, receipts = (site.rows(table, key) for table in (PLANS, RECEIPTS))
    states = {row["state"] for row in receipts}
    actions = sorted({str(row["action"]) for row in plan})
    what = f"{len(receipts)} of {len(plan)} items pushed, {actions}: {states}"
    check(what, bool(plan) and states == {"done"})
    check("the XCache confirmed them", {row["confirmed_by"] for row in receipts} == {"cinfo"})


def empty_pull(site: Site) -> None:
    """An empty pull raises an alarm, and the plan notes it."""
    key = site.keys[1]
    site.api.trigger("pull_accesses", partition_key=key)
    site.chain(key)
    state = site.pulled(key)[f"wait_{TRACES}", -1]["state"]
    check(f"the wait for traces that do not come: {state}", state == "skipped")
    incomplete(site, site.moments[1], "0 reads")


def late_pull(site: Site) -> None:
    """A pull that waits for its records; with them come those that the one before lacked."""
    late, key = site.moments[2], site.keys[2]
    run = site.api.trigger("pull_accesses", partition_key=key)
    until(site, "pull_accesses", run, f"wait_{TRACES}", "deferred")
    n = site.deliver(site.moments[1], late)
    site.chain(key)
    state = site.pulled(key)[f"wait_{TRACES}", -1]["state"]
    check(f"{n} late traces were waited for: {state}", state == "success")
    check(f"traces of {key} are complete: {site.arrivals(late)!r}", not site.arrivals(late))


def damaged_pull(site: Site) -> None:
    """A pull with half of its rows damaged; its push meets a cache that has stopped (`stopped_cache`)."""
    site.deliver(site.moments[3], damaged=True)
    site.api.trigger("pull_accesses", partition_key=site.keys[3])
    for dag in ("pull_accesses", "build_features"):
        site.succeeded(dag, site.api.partition(dag, site.keys[3], within_s=WITHIN_S))


def incomplete(site: Site, moment: int, why: str) -> None:
    """Check that the traces of a decision time are called incomplete, as they are, where it is seen."""
    reasons, key = site.arrivals(moment), as_of_label(moment)
    check(f"traces of {key}: {reasons}", why in reasons)
    run = site.api.partition("place_and_push", key, within_s=60)
    check("its plan says so", f"{TRACES} is incomplete" in site.log("cache.plan", run))


def stopped_cache(site: Site) -> None:
    """Three decision times at a cache that stops as the first is pushed: only the newest acts."""
    first, second, third = site.keys[3:]
    cache = int((site.out / "run" / "cache.pid").read_text().split()[0])
    runs = [site.api.partition("place_and_push", first, within_s=WITHIN_S)]
    awaited(f"cachecast push run --cache {CACHE} --as-of {first}", within_s=WITHIN_S)
    with held(cache):
        until(site, "place_and_push", runs[0], "cache.push", "up_for_retry")
        for moment, key in zip(site.moments[4:], (second, third), strict=True):
            site.deliver(moment)
            site.api.trigger("pull_accesses", partition_key=key)
            for dag in ("pull_accesses", "build_features"):
                site.succeeded(dag, site.api.partition(dag, key, within_s=WITHIN_S))
            runs.append(site.api.partition("place_and_push", key, within_s=WITHIN_S))
    ended = [site.succeeded("place_and_push", run) for run in runs]
    states = [
        next(task["state"] for (name, _), task in tasks.items() if name == "cache.push") for tasks in ended
    ]
    check(f"only the newest is pushed: {states}", states == ["skipped", "skipped", "success"])
    fetched = [
        sum((row["action"], row["state"]) == ("prefetch", "done") for row in site.rows(RECEIPTS, key))
        for key in (first, second)
    ]
    check(f"files fetched for the others: {fetched}", fetched == [0, 0])
    queue = ended[-1]["queue_site", -1]["state"]
    check(f"the queue was asked in the present cycle: {queue}", queue == "success")
    n_queued = sum(str(row["reason"] or "").startswith("queued") for row in site.rows(PLANS, third))
    check(f"{n_queued} items are there for queued jobs", n_queued > 0)
    pushed(site, third)
    incomplete(site, site.moments[3], "rejected")
    firing, good = (site.n_messages(TRACES, state) for state in ("firing", "good again"))
    check(f"alarms: {firing} times incomplete, {good} times good again", (firing, good) in {(3, 2), (3, 3)})


def until(site: Site, dag: str, run: str, task: str, state: str) -> None:
    """Wait for a task of a run to be in `state`."""
    deadline = time.monotonic() + WITHIN_S
    while state not in {row["state"] for (name, _), row in site.api.tasks(dag, run).items() if name == task}:
        assert time.monotonic() < deadline, f"{task} of {dag} is not {state} after {WITHIN_S:.0f} s"
        time.sleep(0.5)
