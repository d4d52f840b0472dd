"""Replays of a trace: policies and the bound at several capacities, and LRU at every capacity.

Traces from files, from tables in memory, and from generated workloads.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pyarrow as pa

from features.common.errors import CachecastError, InputError
from features.common.progress import unwatched
from features.common.times import parse_day
from features.common.units import as_bytes
from jobs.cli.options import EXPORTS
from jobs.ground.settings.tree import Settings
from jobs.ground.text import Row
from jobs.loop.traces import sizes
from jobs.studies.simulate import replay_trace
from jobs.studies.simulate.accesses import ReplayAnswer
from replay import curve, read
from replay.access_context import CONTEXT
from replay.bounds import byte_bound
from replay.curve import Curve
from replay.policies.own import own_policies
from replay.read import LoadedTrace
from replay.read.source import TableSource
from replay.result import Result
from replay.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from jobs.pages.drawing import Plot


P = ParamSpec("P")
T = TypeVar("T")
_ARGUMENTS = {"sort": "sort=True", "from": "since", "capacity": "capacities"}
Reads = LoadedTrace | Trace | str | os.PathLike[str] | Any
_NO_COLUMNS: Mapping[str, str] = {}


def _in_python(text: str) -> str:
    """`text` with the arguments of this module in place of the options of commands."""
    text = re.sub(r"--columns (\w+)=(\w+)", r"columns={'\1': '\2'}", text)
    return re.sub(r"--([a-z][a-z-]*)", lambda at: _ARGUMENTS.get(at[1], at[1].replace("-", "_")), text)


def _says_arguments(call: Callable[P, T]) -> Callable[P, T]:
    """`call`, whose errors name arguments as `_in_python` does."""

    @functools.wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except CachecastError as error:
            error.args = (_in_python(str(error)),)
            raise

    return called


@_says_arguments
def read_trace(
    source: Any,
    *,
    columns: Mapping[str, str] = _NO_COLUMNS,
    time_unit: str = "s",
    time_zone: str | None = None,
    kind: str = "auto",
    sort: bool = False,
    missing_size: str | int | None = None,
) -> LoadedTrace:
    """The trace in a file or folder (by its path), a DataFrame, an Arrow table, or a dict of columns.

    `.trace` has the accesses, `.notes` a sentence for each rule that changed or dropped rows. `columns`: the
    columns by role, where their names are not the usual ones; `time_unit`: of times that are numbers;
    `time_zone`: of times that state none; `kind`: of a file; `sort`: by time; `missing_size`: first, drop
    or the bytes of rows without a size. docs/replay.md lists roles, kinds and faults. Raises CachecastError.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"when": [1, 2, 3], "file": ["a", "b", "a"], "size": [10, 20, 10]})
    >>> reads = read_trace(frame, columns={"time": "when"})
    >>> reads.trace.n_accesses, reads.trace.footprint_bytes
    (3, 30)
    """
    if not isinstance(columns, Mapping) or not all(
        isinstance(word, str) for pair in columns.items() for word in pair
    ):
        raise InputError(f"columns are names by role, for example {{'time': 'when'}}, not {columns!r:.60}")
    if not isinstance(time_unit, str):
        raise InputError(f"time_unit is a word, not {time_unit!r:.60}")
    is_path = isinstance(source, str | os.PathLike)
    reads = read.read_trace(
        Path(source).expanduser() if is_path else TableSource("the table", _arrow(source)),
        columns=columns,
        time_unit=time_unit,
        time_zone=time_zone,
        kind=kind,
        sort=sort,
        missing_size=missing_size,
        keep=CONTEXT,
    )
    return reads._replace(notes=tuple(map(_in_python, reads.notes)))


@_says_arguments
def generate(
    scenario: str, *, accesses: int | None = None, days: int | None = None, seed: int = 1
) -> LoadedTrace:
    """A generated trace: `scenario` is a name in docs/workload.md, or a TOML file. Raises CachecastError.

    >>> generate("mwt2", accesses=1000).trace.n_items > 100
    True
    """
    from jobs.studies.simulate import workload  # noqa: PLC0415  few generate

    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        workload.write(workload.load(scenario, seed=seed, days=days, accesses=accesses), out=Path(folder))
        return read_trace(folder)


def loaded(reads: Reads) -> LoadedTrace:
    """`reads` as `read_trace` gives it."""
    if isinstance(reads, LoadedTrace):
        return reads
    if isinstance(reads, Trace):
        return LoadedTrace(reads, pa.table({}), ())
    return read_trace(reads)


def _arrow(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    index = getattr(source, "index", None)
    if index is not None and hasattr(source, "reset_index") and not any(index.names):
        source = source.reset_index(drop=True)
    if not (isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__")):
        raise InputError(
            "a trace is a path, a DataFrame, an Arrow table, a dict of columns, or what read_trace returns, "
            f"not {type(source).__name__}"
        )
    try:
        return pa.table(dict(source) if isinstance(source, Mapping) else source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"the table cannot be read: {str(error).splitlines()[0]}") from None


Capacity = str | int | float
"""`"5TB"`, bytes, or a share (0.1) of the bytes of all files that are read."""
PolicyLike = str | Callable[..., Any]
"""A name, `file.py:function`, or a function (docs/policies.md)."""


class Replays(ReplayAnswer):
    """A row per capacity and policy, in `rows`, and `notes` on the trace."""

    def __repr__(self) -> str:
        names = {name: dict.fromkeys(row[name] for row in self.rows) for name in ("policy", "capacity_bytes")}
        return f"Replays(policies={[*names['policy']]}, capacities={[*names['capacity_bytes']]})"

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


@_says_arguments
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


@_says_arguments
def bound(reads: Reads, capacity: Capacity, *, since: str | None = None) -> Result:
    """The fewest WAN bytes that any policy can fetch. Raises CachecastError.

    >>> bound({"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 10, 10]}, "10B").wan_bytes
    20
    """
    trace = loaded(reads).trace
    in_bytes, fractions = _asked([capacity])
    (size,) = sizes(trace, capacities=in_bytes, fractions=fractions)
    return byte_bound(trace, size, count_from_s=_counted(since))


@_says_arguments
def lru_curve(reads: Reads, *, since: str | None = None) -> Curve:
    """The hits of LRU at every capacity, from one pass. Raises CachecastError.

    >>> curve = lru_curve({"time": [1, 2, 3], "item": ["a", "b", "a"], "size": [10, 10, 10]})
    >>> curve.hit_ratio_at("20B"), curve.capacity_for(hit_ratio=0.3)
    (0.3333333333333333, 20)
    """
    return curve.lru_curve(loaded(reads).trace, count_from_s=_counted(since))


def _several(value: Any) -> Sequence[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _asked(capacities: Capacity | Sequence[Capacity]) -> tuple[list[int], list[float]]:
    """Those in bytes, and the shares. Raises InputError."""
    in_bytes, shares = list[int](), list[float]()
    for value in _several(capacities):
        if isinstance(value, float) and 0 < value <= 1:
            shares.append(value)
        else:
            in_bytes.append(as_bytes(value))
    if not in_bytes and not shares:
        raise InputError("there is no capacity; give bytes, a text like '5TB', or a share like 0.1")
    return in_bytes, shares


def _counted(since: str | None) -> int | None:
    if not isinstance(since, str | None):
        raise InputError(f"since is a UTC day, for example 2026-03-01, not {since!r:.60}")
    return None if since is None else parse_day(since)
