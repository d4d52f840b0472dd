"""Replays of a trace: policies and the bound at several capacities, and LRU at every capacity."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachecast.reads import Reads, loaded
from features.common.errors import InputError
from features.common.progress import unwatched
from features.common.times import parse_day
from features.common.units import as_bytes
from jobs.cli.options import EXPORTS
from jobs.ground.settings.tree import Settings
from jobs.ground.text import Row
from jobs.loop.traces import sizes
from jobs.studies.simulate import replay_trace
from jobs.studies.simulate.accesses import ReplayAnswer
from replay import curve
from replay.bounds import byte_bound
from replay.curve import Curve
from replay.policies.own import own_policies
from replay.result import Result

if TYPE_CHECKING:
    import pandas as pd

    from jobs.pages.drawing import Plot

Capacity = str | int | float
"""`"5TB"`, bytes, or a share (0.1) of the bytes of all files that are read."""
PolicyLike = str | Callable[..., Any]
"""A name, `file.py:function`, or a function (docs/policies.md)."""


class Replays(ReplayAnswer):
    """A row per capacity and policy, in `rows`, and `notes` on the trace."""

    def frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, with the columns of `cachecast replay --json`."""
        import pandas as pd  # noqa: PLC0415  it takes long to import

        return pd.DataFrame(self.rows)

    def gap_closed(self, policy: str) -> dict[int, float | None]:
        """By capacity in bytes, the share of the gap between LRU and the bound; None: there is no gap."""
        mine: list[Row] = [row for row in self.rows if row["policy"] == policy]
        if not mine:
            raise InputError(f"{policy!r:.60} was not replayed")
        return {row["capacity_bytes"]: row["byte_gap_closed"] for row in mine}

    def plot(self) -> Plot:
        """Byte hit ratio against capacity, which Jupyter shows; `.figure` is matplotlib's."""
        from jobs.pages import plots  # noqa: PLC0415  matplotlib takes long to import

        return plots.hit_ratio_against_capacity(self.rows, self.capacity)

    def write(self, out: str | os.PathLike[str], *, title: str = "Replay") -> None:
        """Write the page (.html), the plot (.svg), or the rows (.csv, .parquet, .json)."""
        if Path(out).suffix not in EXPORTS:
            raise InputError(f"cannot write {out}: its name must end in one of {', '.join(EXPORTS)}")
        replay_trace.export_replay(self, Path(out), title=title)

    def record(self, name: str, *, uri: str = "", params: Mapping[str, object] | None = None) -> str:
        """Record a run of MLflow, with the page and a nested run per policy; return its id.

        `uri`: of the server or `sqlite:///FILE`; by default that of the settings, [mlflow] uri.
        """
        mlflow = Settings.load().mlflow
        session = mlflow.model_copy(update={"uri": uri}) if uri else mlflow
        return replay_trace.record_run(session, self, what=name, params=params or {})


def replay(
    reads: Reads,
    policies: PolicyLike | Sequence[PolicyLike] = ("lru", "s3fifo", "clairvoyant"),
    capacities: Capacity | Sequence[Capacity] = (0.01, 0.05, 0.1, 0.2),
    *,
    since: str | None = None,
) -> Replays:
    """Replay the policies, LRU and the bound, at each capacity. Raises CachecastError.

    `since`: the first UTC day that counts; earlier accesses warm the caches, and stewards learn from them.

    >>> def nothing(trace, capacity_bytes, hit):
    ...     return 0
    >>> reads = {"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 10, 10]}
    >>> replays = replay(reads, ["fifo", nothing], "20B")
    >>> replays.gap_closed("fifo"), replays.gap_closed("nothing")
    ({20: None}, {20: None})
    """
    trace = loaded(reads)
    names, own = own_policies(_several(policies))
    caches = replay_trace.Caches(names, *_asked(capacities), own=own)
    answer = replay_trace.replay_loaded(trace, caches, count_from_s=_counted(since), on_progress=unwatched)
    return Replays(answer.rows, answer.notes, capacity=answer.capacity)


def bound(reads: Reads, capacity: Capacity, *, since: str | None = None) -> Result:
    """The fewest WAN bytes that any policy can fetch. Raises CachecastError.

    >>> bound({"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 10, 10]}, "10B").wan_bytes
    20
    """
    trace = loaded(reads).trace
    in_bytes, fractions = _asked(capacity)
    (size,) = sizes(trace, capacities=in_bytes, fractions=fractions)
    return byte_bound(trace, size, count_from_s=_counted(since))


def lru_curve(reads: Reads, *, since: str | None = None) -> Curve:
    """The hits of LRU at every capacity, from one pass. Raises CachecastError.

    >>> curve = lru_curve({"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 10, 10]})
    >>> curve.hit_ratio_at("20B"), curve.capacity_for(hit_ratio=0.3)
    (0.3333333333333333, 20)
    """
    return curve.lru_curve(loaded(reads).trace, count_from_s=_counted(since))


def _several(given: Any) -> Sequence[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _asked(given: Capacity | Sequence[Capacity]) -> tuple[list[int], list[float]]:
    """Those in bytes, and the shares. Raises InputError."""
    shares = [one for one in _several(given) if isinstance(one, float) and 0 < one <= 1]
    return [as_bytes(one) for one in _several(given) if one not in shares], shares


def _counted(since: str | None) -> int | None:
    if not isinstance(since, str | None):
        raise InputError(f"since is a UTC day, for example 2026-03-01, not {since!r:.60}")
    return None if since is None else parse_day(since)
