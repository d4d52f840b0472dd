"""The traces of a leaderboard, as a TOML file names them: files, and generated regions."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from importlib import resources
from pathlib import Path

import pydantic

from features.common.errors import InputError
from features.common.faults import validated
from features.common.times import DAY_S, parse_day
from jobs.ground.settings.layers import read_file
from jobs.ground.settings.values import Name, Section, Share
from jobs.loop.traces import TraceFile
from jobs.studies.simulate import workload
from replay.access_context import CONTEXT, AccessContext, context_of
from replay.trace import Trace

SHIPPED = Path(str(resources.files("conf").joinpath("leaderboard.toml")))
MOST_ENTRIES = 100
FORM = 3
"""Version of what a kept result means and of how stewards decide; results of another one are made again."""


class Entry(Section):
    """One `[[trace]]`: a file (`path`) or a generated region (`scenario`).

    `columns`: of the file, by role, as for `--columns`. `count_from`: the first day that
    counts, or the share of the trace's time before it.
    """

    name: Name
    path: Path | None = None
    columns: dict[str, str] = pydantic.Field(default_factory=dict)
    time_unit: str = "s"
    sort: bool = False
    scenario: str | None = None
    accesses: int | None = pydantic.Field(default=None, gt=0)
    seed: int = pydantic.Field(default=1, ge=0)
    count_from: str | Share = 0.5

    @pydantic.model_validator(mode="after")
    def _is_one(self) -> Entry:
        if (self.path is None) == (self.scenario is None):
            raise ValueError("give either path or scenario")
        return self


class _Entries(Section):
    trace: tuple[Entry, ...] = pydantic.Field(min_length=1, max_length=MOST_ENTRIES)

    @pydantic.field_validator("trace")
    @classmethod
    def _names_differ(cls, traces: tuple[Entry, ...]) -> tuple[Entry, ...]:
        if len({one.name for one in traces}) < len(traces):
            raise ValueError("two traces have the same name")
        return traces


@dataclasses.dataclass(frozen=True, eq=False)
class BoardTrace:
    """A trace of the leaderboard, counted from `from_s` on."""

    name: str
    trace: Trace
    story: AccessContext
    from_s: int

    @property
    def n_days(self) -> int:
        """Days that count, also those without an access."""
        return int(self.trace.time_s[-1]) // DAY_S - self.from_s // DAY_S + 1

    @functools.cached_property
    def digest(self) -> str:
        """Of all that decides a replay of the trace."""
        trace, told = self.trace, self.story
        whole = hashlib.sha256(str(self.from_s).encode())
        files = (told.files.dataset, told.files.tier)
        for values in (trace.time_s, trace.item, trace.size_bytes, *files, told.reader):
            whole.update(values.tobytes())
        return whole.hexdigest()[:32]


def read_entries(path: Path) -> tuple[Entry, ...]:
    """The entries of a TOML file; their paths are relative to it. Raises ConfigError."""
    entries = validated(_Entries, read_file(path), where=str(path), see="docs/leaderboard.md").trace
    return tuple(
        one if one.path is None else one.model_copy(update={"path": path.parent / one.path})
        for one in entries
    )


def opened(entry: Entry, scratch: Path) -> BoardTrace:
    """The trace of an entry; a generated one is written to `scratch` first. Raises as its reader."""
    path = entry.path or _generated(entry, scratch)
    file = TraceFile(path, entry.columns, entry.time_unit, "auto", entry.sort, {}, None)
    loaded = file.load(keep=CONTEXT)
    trace = loaded.trace
    return BoardTrace(entry.name, trace, context_of(loaded), _counted_from(entry, trace))


def _generated(entry: Entry, scratch: Path) -> Path:
    assert entry.scenario is not None
    config = workload.load(entry.scenario, seed=entry.seed, accesses=entry.accesses)
    return Path(workload.write(config, out=scratch / entry.name).traces)


def _counted_from(entry: Entry, trace: Trace) -> int:
    """The first second that counts. Raises InputError unless it lies within the trace."""
    first_s, last_s = int(trace.time_s[0]), int(trace.time_s[-1])
    if isinstance(entry.count_from, str):
        from_s = parse_day(entry.count_from)
    else:
        from_s = int(first_s + entry.count_from * (last_s - first_s)) // DAY_S * DAY_S
    if not first_s < from_s <= last_s:
        raise InputError(
            f"trace {entry.name}: count_from {entry.count_from} is not within it; choose a day with accesses "
            "before and after it"
        )
    return from_s
