"""The demo's second half: plan for a running cache, push to it, let jobs read, and account the push."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import ServiceError
from features.common.names import names_of
from features.common.progress import Advance, unwatched
from features.common.times import HOUR_S
from features.schema import FILES, PREDICTIONS, RECEIPTS
from jobs.ground.caches.inventory import target
from jobs.local_site.demo.site import Demo
from jobs.local_site.demo.xcache import NAME, DemoCache, read_all
from jobs.loop.ingest import pull
from jobs.loop.outcomes import outcomes
from jobs.loop.plan import plan
from jobs.loop.push import push
from prefetch.actions import Action, ItemState

UNPROVEN = (
    "pushed with --unproven: the demo promotes no model, because a month of records is too short to train "
    "one and prove it on the days after"
)
READS_BEFORE, READS_AFTER = 700, 400
"""Reads of jobs through the demo's cache: the last before the plan, and the first after it."""
PARTS = 5
"""Today's reads come in so many parts; after each a push and a purge."""


@dataclasses.dataclass(frozen=True)
class Reads:
    """Names of the files that jobs read before and after the time of the plan, in order.

    `after_s`: the time that the reads after it took where they were made.
    """

    before: Sequence[str]
    after: Sequence[str]
    after_s: int

    @classmethod
    def around(cls, yesterday: Path, today: Path, *, midnight_s: int) -> Reads:
        """The reads around midnight, from two days' raw traces."""
        earlier, later = (pd.read_json(traces, lines=True) for traces in (yesterday, today))
        later = later.head(READS_AFTER)
        return cls(
            before=earlier["filename"].tolist()[-READS_BEFORE:],
            after=later["filename"].tolist(),
            after_s=int(later["transferStart"].max()) - midnight_s,
        )


@dataclasses.dataclass(frozen=True)
class Purged:
    """The cache's inventory after its own purge."""

    held_files: int
    pinned_files: int
    pinned_files_lost: int
    evicted_files: int


def serve(demo: Demo, cache: DemoCache, reads: Reads) -> dict[str, Any]:
    """Warm the cache, plan, push, account what today's jobs then read; the answer of each step."""
    with demo.step("plan") as advance:
        advance(0, 4, "files at the origin")
        cache.add_files(_sizes(demo, reads))
        advance(1, 4, "yesterday's jobs read")
        read_all(cache, reads.before)
        advance(2, 4, "the cache purges")
        cache.purge()
        advance(3, 4, "deciding")
        planned = plan.run(demo.settings, cache=NAME, as_of_s=demo.as_of_s)
    with demo.step("push") as advance:
        pushed = _push(demo, advance)
    demo.found(f"to {cache.kind}; {UNPROVEN}")
    with demo.step("outcomes") as advance:
        last = [_push_between(demo, cache, part, advance) for part in enumerate(_parts(reads.after))][-1]
        purged = _purged(demo)
        advance(PARTS, PARTS + 1, "the cache's records")
        records = pull.run(
            demo.settings, source="xcache_gstream", path=str(cache.gstream), day_s=demo.as_of_s
        )
        earned = outcomes.of_plan(demo.settings, cache=NAME, as_of_s=demo.as_of_s)
    hours = f"the first {reads.after_s / HOUR_S:.1f} h of the plan's day"
    demo.found(f"{len(reads.after)} reads, {hours}; {earned.in_words}")
    return {
        "plan": planned,
        "push": pushed,
        "last push": last,
        "purge": purged,
        "records": records,
        "outcomes": earned,
    }


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    """Reads in parts, each of which brings in about a fifth of what the cache holds."""
    length = -(-len(names) // PARTS)
    return [names[at : at + length] for at in range(0, len(names), length)]


def _push_between(demo: Demo, cache: DemoCache, part: tuple[int, Sequence[str]], advance: Advance) -> Any:
    """Let jobs read a part, push once more, and purge; the push's answer.

    A site's cache purges a few percent at a time, and pushes keep the pins out of their reach. This one takes
    in days within seconds: read in one part, it would grow to three times its limit, and purge what was used
    moments ago.
    """
    number, names = part
    advance(number, PARTS + 1, "today's jobs read")
    read_all(cache, names)
    pushed = _push(demo, unwatched)
    cache.purge()
    return pushed


def _push(demo: Demo, advance: Advance) -> Any:
    return push.run(demo.settings, cache=NAME, as_of_s=demo.as_of_s, on_progress=advance, unproven=True)


def _purged(demo: Demo) -> Purged:
    """The inventory after a purge. Raises ServiceError if a pinned file was purged."""
    held = {file.name for file in target(demo.settings.cache(NAME)).inventory()}
    receipts = demo.tables.read_arrow(RECEIPTS, as_of=demo.as_of, owner=NAME)
    receipts = receipts.filter(pc.equal(receipts["state"], ItemState.DONE)).combine_chunks()
    actions, names = receipts["action"].to_pylist(), names_of(receipts["did"]).to_pylist()
    done = list(zip(actions, names, strict=True))
    pinned = {name for action, name in done if action == Action.PIN}
    if lost := pinned - held:
        raise ServiceError(
            f"the purge took {len(lost)} of {len(pinned)} pinned files, {min(lost)} among them"
        )
    return Purged(
        held_files=len(held),
        pinned_files=len(pinned),
        pinned_files_lost=len(lost),
        evicted_files=sum(action == Action.EVICT for action, _ in done),
    )


def _sizes(demo: Demo, reads: Reads) -> dict[str, int]:
    """Sizes by name of the files that jobs read, and of those that the plan may fetch."""
    region = demo.settings.region.name
    predicted = demo.tables.read_arrow(PREDICTIONS, as_of=demo.as_of, owner=region, columns=["did"])
    files = demo.tables.read_arrow(FILES, columns=["did", "name", "size_bytes"])
    is_read = pc.is_in(files["name"], value_set=pa.array({*reads.before, *reads.after}, pa.string()))
    is_predicted = pc.is_in(files["did"], value_set=pc.unique(predicted["did"]))
    rows = files.filter(pc.or_(is_read, is_predicted))
    return dict(zip(rows["name"].to_pylist(), rows["size_bytes"].to_pylist(), strict=True))
