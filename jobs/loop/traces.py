"""The accesses of a replay, from a trace file or from the site's tables."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.accesses import PLACES, demand
from features.common.errors import InputError, StaleInputError
from features.common.times import day_label
from features.common.units import format_bytes
from features.schema import ACCESSES
from jobs.ground.store.schema_check import no_access
from jobs.ground.store.sizes import catalogue
from jobs.ground.store.tables import Tables, read_partitions
from replay.read import LoadedTrace, read_trace
from replay.read.assemble import EVERYTHING, from_arrow
from replay.trace import Trace

KNOWN_AT = "known_at"
_READ = [
    *("accessed_at", "closed_at", "did", "size_bytes", "read_bytes"),
    *("n_reads", "event_id", "source", KNOWN_AT),
]
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TraceFile:
    """A trace given on the command line; the fields are the parameters of `read_trace`."""

    path: Path
    columns: Mapping[str, str]
    time_unit: str
    kind: str
    sort: bool
    only: Mapping[str, str]
    until_s: int | None
    time_zone: str | None = None
    missing_size: str | None = None

    @property
    def what(self) -> str:
        """Its name, with the site or activity whose accesses alone count."""
        return ", ".join((self.path.name, *self.only.values()))

    def load(self, *, keep: Sequence[str] = (), since_s: int | None = None) -> LoadedTrace:
        """The trace, from `since_s` on, with the further columns `keep`. Raises InputError."""
        _log.info("reading the trace %s", self.path)
        options = {name: value for name, value in vars(self).items() if name != "path"}
        return read_trace(self.path, **options, since_s=since_s, keep=keep)


def from_tables(
    tables: Tables,
    *,
    since_s: int,
    until_s: int,
    demand_sources: Mapping[str, str],
    only: Mapping[str, str] = EVERYTHING,
    known_before_s: int | None = None,
    history_s: int = 0,
    keep: Sequence[str] = (),
) -> LoadedTrace:
    """The accesses of the days of `since_s` to `until_s` (inclusive), with the files table as catalogue.

    Sizes that neither has come from other sources and the caches' inventories (`jobs.ground.store.sizes`).

    `known_before_s`: only accesses that were known, and happened, before it; `history_s`: also those of this
    long before `since_s`; `keep`: columns to keep beside the trace. Raises StaleInputError if there is no
    access, InputError.
    """
    snapshot = tables.snapshot(ACCESSES)
    days = snapshot.select(since=day_label(since_s - history_s), until=day_label(until_s))
    names = dict.fromkeys([*_READ, *(PLACES if demand_sources else ()), *only, *keep])
    accesses = read_partitions(snapshot, days, [*names], coded={*names} - {"event_id", *PLACES})
    if not accesses.num_rows:
        raise no_access(snapshot, first_s=since_s, last_s=until_s, before_s=history_s)
    counted = _before(demand(accesses, demand_sources) if demand_sources else accesses, known_before_s)
    # Files are numbered as they appear: among words of other rows, and without a size, only as plain texts.
    is_sized = pc.fill_null(pc.greater(counted["size_bytes"], 0), False)
    if counted.num_rows < accesses.num_rows or not pc.all(is_sized, min_count=0).as_py():
        is_whole = counted is accesses
        accesses = _plain(accesses)
        counted = accesses if is_whole else _plain(counted)
    if not counted.num_rows:
        raise StaleInputError(
            "no access of those days is of a demand source; there are some of "
            f"{', '.join(accesses['source'].unique().to_pylist())}: name one in [sources] demand"
        )
    files = catalogue(tables, counted, accesses)
    return from_arrow(counted, files=files, only=only, keep=keep)


def _plain(rows: pa.Table) -> pa.Table:
    """The same with its texts as they are, not coded."""
    types = [(of.name, getattr(of.type, "value_type", of.type)) for of in rows.schema]
    return rows.cast(pa.schema(types))


def _before(accesses: pa.Table, instant_s: int | None) -> pa.Table:
    if instant_s is None:
        return accesses
    instant = pa.scalar(instant_s * 1_000_000, pa.timestamp("us", tz="UTC"))
    is_past = [pc.less(accesses[name], instant) for name in (KNOWN_AT, "accessed_at")]
    return accesses.filter(pc.and_(*is_past))


def known_s(loaded: LoadedTrace) -> npt.NDArray[np.uint32]:
    """When each access of a trace that was read with `KNOWN_AT` became known, s since 1970."""
    at_s = loaded.details[KNOWN_AT].cast(pa.int64()).to_numpy() // 1_000_000
    return np.asarray(np.clip(at_s, 0, np.iinfo(np.uint32).max), np.uint32)


def sizes(trace: Trace, *, capacities: Sequence[int], fractions: Sequence[float]) -> list[int]:
    """Capacities in bytes: `capacities`, and `fractions` of all files read. Raises InputError."""
    footprint = trace.footprint_bytes
    capacities_bytes = [*capacities, *(int(share * footprint) for share in fractions)]
    if any(size <= 0 for size in capacities_bytes):
        raise InputError(
            f"a cache needs room: {trace.n_accesses} accesses read {format_bytes(footprint)} of files, and a "
            "capacity is less than a byte; give --capacity, or larger fractions"
        )
    return list(dict.fromkeys(capacities_bytes))
