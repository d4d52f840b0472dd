"""Errors for missing tables and days: they name those that exist, and the command that writes others."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

from features.common.errors import StaleInputError
from features.common.times import DAY_S, day_label, parse_day
from features.common.units import duration_label
from jobs.ground.store.commits import Snapshot

WRITTEN_BY: Mapping[str, str] = {
    **dict.fromkeys(("accesses", "files", "unpaired", "job_records", "pulls", "rejects"), "pull"),
    **dict.fromkeys(("features", "states", "dormant", "consumed"), "features"),
    **dict.fromkeys(("features_sample", "labels_sample"), "cycle --train"),
    **dict.fromkeys(("labels", "model_metrics", "reliability", "model_slices", "model_holdings"), "train"),
    "arrivals": "arrivals",
    "trainings": "train",
    **dict.fromkeys(("predictions", "drift"), "predict"),
    **dict.fromkeys(("contents", "plans"), "plan"),
    **dict.fromkeys(("replays", "replay_days", "replay_fills"), "replay"),
    **dict.fromkeys(("outcomes", "worth"), "outcomes"),
    "receipts": "push",
    "steward_days": "steward",
    "queue": "queue",
    "evaluations": "evaluate",
    "promotions": "promote",
}
"""The command that writes each table."""

_MOST_SPANS = 4


def no_table(name: str, root: str, *, others: Collection[str]) -> StaleInputError:
    """The error that there is no table `name` at `root`, but `others`."""
    if not others:
        return StaleInputError(
            f"there is no table {name} at {root}, and no other table: run `cachecast pull` first, or name "
            "the root of your tables by --tables or [tables] root"
        )
    return StaleInputError(f"there is no table {name} at {root}; run `cachecast {WRITTEN_BY[name]}` first")


def no_access(accesses: Snapshot, *, first_s: int, last_s: int, before_s: int = 0) -> StaleInputError:
    """The error that there is no access on the days from `first_s` to `last_s`, but on others.

    `before_s`: nor this long before them.
    """
    first, last = day_label(first_s), day_label(last_s)
    days = f"on {first}" if first == last else f"from {first} to {last}"
    before = f", nor in the {duration_label(before_s)} before" if before_s else ""
    return StaleInputError(
        f"there is no access {days}{before}; {days_there(accesses)}: choose from them, or pull more first"
    )


def days_there(accesses: Snapshot) -> str:
    """The days that have accesses, in words."""
    spans = _spans({key[0] for key, part in accesses.partitions.items() if part.n_rows})
    if not spans:
        return "there is none on any day"
    days = [first if first == last else f"{first} to {last}" for first, last in spans]
    if len(days) > _MOST_SPANS:
        days = [*days[: _MOST_SPANS - 1], f"further days until {spans[-1][1]}"]
    return f"there are accesses of {', '.join(days)}"


def _spans(days: Collection[str]) -> list[tuple[str, str]]:
    """First and last day of each run of consecutive days, in order."""
    runs = itertools.groupby(
        enumerate(sorted(days)), lambda numbered: parse_day(numbered[1]) - numbered[0] * DAY_S
    )
    whole = [[day for _, day in run] for _, run in runs]
    return [(run[0], run[-1]) for run in whole]
