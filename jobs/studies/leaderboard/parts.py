"""Replays and forecast errors of a leaderboard, a file each, so that a stopped run continues from them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import numpy as np
import pydantic

from features.common import files
from features.common.arrays import IntArray
from features.common.errors import InputError, bounded
from features.common.times import DAY_S
from jobs.studies.leaderboard.entries import FORM, BoardTrace
from models.series.rolling import rolling_quality
from models.series.series import Series
from replay.comparison import BOUND, Row

_HOUR_S: Final = 3600
_CUTS: Final = 6
"""Forecasts per trace and unit, spread over the counted days and, by hours, over the times of day."""
Amount = Annotated[float, pydantic.Field(ge=0, le=1e12, allow_inf_nan=False)]


@dataclasses.dataclass(frozen=True)
class Errors:
    """Mean |forecast - accesses| / accesses of the next hour or day, over datasets read in it.

    None: the trace has no unit to forecast.
    """

    form: int
    digest: str
    hourly: Amount | None
    daily: Amount | None

    def of(self, measure: str) -> float | None:
        """The error by the name of its measure, for example `daily_relative_error`."""
        return self.hourly if measure.startswith("hourly") else self.daily


def errors_of(board: BoardTrace) -> Errors:
    """The errors over the counted days of a trace, each forecast from what was known then."""
    return Errors(FORM, board.digest, *(_error(board, unit_s) for unit_s in (_HOUR_S, DAY_S)))


def series_of(board: BoardTrace, unit_s: int) -> Series:
    """Accesses per dataset and unit of a trace; unit 1 has its first access. The last unit is left out: the
    trace may end within it.
    """
    unit = board.trace.time_s // unit_s - int(board.trace.time_s[0]) // unit_s + 1
    n_units = int(unit[-1])
    unit = unit[unit < n_units]
    dataset = board.story.files.dataset[board.trace.item[: unit.size]].astype(np.int64)
    key, reads = np.unique(dataset * n_units + unit, return_counts=True)
    code, unit = np.divmod(key, n_units)
    present, code = np.unique(code, return_inverse=True)
    born = np.full(present.size, n_units)
    np.minimum.at(born, code, unit)
    names = [f"{number:09d}" for number in present.tolist()]
    return Series(unit_s, n_units - 1, names, born, code, unit, reads.astype(np.int64))


def cuts(board: BoardTrace, series: Series) -> IntArray:
    """Units of the counted days after which a forecast is made, in order."""
    first = board.from_s // series.unit_s - int(board.trace.time_s[0]) // series.unit_s
    if first >= series.now:
        return np.zeros(0, np.int64)
    return np.unique(np.linspace(first, series.now - 1, _CUTS).astype(np.int64))


def _error(board: BoardTrace, unit_s: int) -> float | None:
    series = series_of(board, unit_s)
    if not series.names:
        return None
    rows = list(rolling_quality(series, [1], cuts(board, series).tolist()))
    return float(np.mean([row.relative_error for row in rows])) if rows else None


_FOLDER = "parts"
_POLICY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_MOST_BYTES = 64 << 20
_MOST = 2**62
Count = Annotated[int, pydantic.Field(ge=0, le=_MOST)]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Part:
    """One policy at one capacity on one trace. Lists have an entry per counted day.

    `digest`: of the trace and its counted days; `cpu_s`: of the replay, warm-up included, `accesses` those it
    replayed; `hits` is None for a bound on bytes. `learned_for`: the capacity fractions that its orders were
    learned for, empty for a policy that follows none.
    """

    form: int
    digest: str
    trace: str
    capacity_fraction: float
    capacity_bytes: int
    policy: str
    accesses: Count
    requests: Count
    bytes_requested: Count
    hits: Count | None
    cpu_s: Amount
    wan_bytes: list[Count]
    learned_for: list[float] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse what cannot be: parts may come from elsewhere, and their policies become paths."""
        if not _POLICY.fullmatch(self.policy):
            raise ValueError(f"no policy is called {self.policy!r}")
        if sum(self.wan_bytes) > _MOST or (self.hits or 0) > self.requests:
            raise ValueError("more WAN bytes than 62 bits hold, or more hits than requests")


_PARTS = pydantic.TypeAdapter(Part)
_ERRORS = pydantic.TypeAdapter(Errors)


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts in folder `out`."""

    out: Path

    def find(
        self, board: BoardTrace, fraction: float, policy: str, learned_for: Sequence[float] = ()
    ) -> Part | None:
        """The part, if it was replayed on this very trace, by orders learned for these capacity fractions.

        Raises InputError if it cannot be read.
        """
        path = self._path(board.name, fraction, policy)
        found = _read(path, _PARTS) if path.exists() else None
        wanted = (FORM, board.digest, list(learned_for))
        return found if found and (found.form, found.digest, found.learned_for) == wanted else None

    def beside(self, board: BoardTrace, fraction: float) -> Iterator[Part]:
        """All parts of the trace at one capacity, also those that another program has put there."""
        folder = self._path(board.name, fraction, "").parent
        for path in sorted(folder.glob("*.json")):
            found = _read(path, _PARTS)
            if (found.form, found.digest) == (FORM, board.digest):
                wanted = (board.name, fraction, capacity(board, fraction), path.stem, board.n_days)
                if (of := _subject(found)) != wanted:
                    raise InputError(f"{path} is of {bounded(str(of))}, not of {wanted}; delete it")
                yield found

    def keep(self, part: Part) -> None:
        """Write a part; it is there as a whole, or not at all."""
        _write(self._path(part.trace, part.capacity_fraction, part.policy), part)

    def errors(self, board: BoardTrace) -> Errors:
        """The errors of forecasts of this very trace, made once. Raises InputError if they cannot be read."""
        path = self.out / _FOLDER / board.name / "forecasts.json"
        found = _read(path, _ERRORS) if path.exists() else None
        if found is None or (found.form, found.digest) != (FORM, board.digest):
            _write(path, found := errors_of(board))
        return found

    def _path(self, trace: str, fraction: float, policy: str) -> Path:
        return self.out / _FOLDER / trace / f"{fraction:.12g}" / f"{policy}.json"


def _subject(part: Part) -> tuple[str, float, int, str, int]:
    return part.trace, part.capacity_fraction, part.capacity_bytes, part.policy, len(part.wan_bytes)


def part_of(board: BoardTrace, fraction: float, row: Row, learned_for: Sequence[float]) -> Part:
    """A row of a contest as a part."""
    return Part(
        form=FORM,
        digest=board.digest,
        trace=board.name,
        capacity_fraction=fraction,
        capacity_bytes=row.capacity_bytes,
        policy=row.policy,
        accesses=board.trace.n_accesses,
        requests=row.result.requests,
        bytes_requested=row.result.bytes_requested,
        hits=None if row.policy == BOUND else row.result.hits,
        cpu_s=row.cpu_s,
        wan_bytes=row.result.daily.wan_bytes.tolist(),
        learned_for=list(learned_for),
    )


def capacity(board: BoardTrace, fraction: float) -> int:
    """Bytes of a cache of this share of the trace's files. Raises InputError if that is nothing."""
    found = int(fraction * board.trace.footprint_bytes)
    if found <= 0:
        raise InputError(f"trace {board.name}: {fraction:%} of the files read has no room for any")
    return found


def _write(path: Path, found: Part | Errors) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, json.dumps(dataclasses.asdict(found)))


def _read(path: Path, form: pydantic.TypeAdapter[T]) -> T:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise ValueError("no plain file, or too large")
        return form.validate_json(path.read_bytes(), strict=True)
    except (OSError, ValueError) as error:
        what = bounded(" ".join(str(error).split()), 200)
        raise InputError(f"{path} cannot be read ({what}); delete it, to make it again") from None
