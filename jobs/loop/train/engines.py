"""The input of an engine: features of a region at decision times, or labels of features; and the summary."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from features.common.errors import InputError
from features.common.times import as_of_label, parse_as_of
from features.schema import ACCESSES, DORMANT, STATES, Table
from features.spec import FeatureSpec
from jobs.ground.settings.tree import Settings, SparkSettings
from jobs.ground.spark import check_spark, is_submitted
from jobs.ground.store.commits import Key, MomentKey
from jobs.ground.store.tables import Partition, Snapshot, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclasses.dataclass(frozen=True)
class DayInState:
    """How much of one day of accesses a state has counted: `n_known` of its `n_rows` demand rows.

    `digest`: of the day's files; `content`: the sum of hashes of what features use of the counted rows.
    """

    digest: str = ""
    n_known: int = 0
    n_rows: int = 0
    content: int = 0

    def is_complete(self, digest: str) -> bool:
        """Whether the state has counted all rows of the day, whose files have this digest now."""
        return self.digest == digest and self.n_known == self.n_rows

    def with_file(self, other: DayInState) -> DayInState:
        """The same with what is counted of another file of the day."""
        content = np.array([self.content, other.content]).sum()  # it wraps
        return DayInState(self.digest, self.n_known + other.n_known, self.n_rows + other.n_rows, int(content))

    def has_same_reads(self, other: DayInState) -> bool:
        """Whether both have counted the same reads."""
        return (self.n_known, self.content) == (other.n_known, other.content)


class DaysRead(NamedTuple):
    """Days of accesses as they are now: by day what states at each of several times have counted of it.

    `rows`: their demand rows with the columns `features.stream.events.COLUMNS`, as the engine keeps them.
    """

    in_state: Mapping[Key, Sequence[DayInState]]
    rows: list[Any]


@dataclasses.dataclass(frozen=True)
class StateSource:
    """What a state at an as_of is made from: the state `since` (None: none) and accesses of `days`.

    `awake`: its partition of `states`, whose files stay a while even if another process drops it; `dormant`:
    partitions of the table `dormant` that belong to it; of a dataset in several of them the newest counts,
    and that of the state before all. `in_state`: what the state will have counted of each day; `older`:
    partitions by table that are not needed any more. `is_kept`: whether the state is written; else later ones
    are made from `since`, too. `reads`: the rows of `days` if the engine has kept them, which it takes out.
    """

    since: MomentKey | None
    awake: Mapping[Key, Partition]
    dormant: Mapping[Key, Partition]
    days: Mapping[Key, Partition]
    in_state: Mapping[str, DayInState]
    older: Mapping[Table, Collection[Key]]
    is_kept: bool
    reads: list[Any]


@dataclasses.dataclass(frozen=True)
class FeatureWork:
    """Features at `as_ofs` (sorted), from accesses of `days`.

    `source`: what the state at the only as_of is made from; None: no state is read or written. `before_s`:
    an earlier time per as_of, so that only rows that changed since are made (`Region.features`); empty: all.
    """

    spec: FeatureSpec
    region: str
    as_ofs: Sequence[int]
    demand_sources: Mapping[str, str]
    accesses: Snapshot
    days: Mapping[Key, Partition]
    source: StateSource | None
    before_s: Sequence[int | None] = ()

    @property
    def moments(self) -> Iterator[tuple[int, int | None]]:
        """Each as_of, with the time since which its rows have changed; None: all rows."""
        return zip(self.as_ofs, self.before_s or [None] * len(self.as_ofs), strict=True)

    @property
    def keys(self) -> list[MomentKey]:
        """The partitions of the features."""
        return [MomentKey.at(as_of_s, self.region) for as_of_s in self.as_ofs]

    @property
    def since_s(self) -> int | None:
        """The time of the state that is carried on, if any."""
        since = None if self.source is None else self.source.since
        return None if since is None else parse_as_of(since.as_of)

    @property
    def state_windows(self) -> Mapping[Table, tuple[float, float]]:
        """Tables that the state is written to: datasets whose last counted read is in the table's window."""
        if self.source is None or not self.source.is_kept:
            return {}
        before_s = self.spec.dormant_before(self.as_ofs[-1])
        moved_s = -math.inf if self.since_s is None else self.spec.dormant_before(self.since_s)
        states = {STATES: (before_s, math.inf)}
        return states | ({DORMANT: (moved_s, before_s)} if moved_s < before_s else {})

    def older(self, table: Table) -> Collection[Key]:
        """The partitions of a table of the state that are dropped when it is written."""
        return () if self.source is None else self.source.older[table]


@dataclasses.dataclass(frozen=True)
class LabelWork:
    """Labels of the files in `partitions` of `features`, from what was known before `until_s`."""

    spec: FeatureSpec
    until_s: int
    demand_sources: Mapping[str, str]
    accesses: Snapshot
    days: Mapping[Key, Partition]
    features: Snapshot
    partitions: Mapping[Key, Partition]


@dataclasses.dataclass(frozen=True)
class Counting:
    """What is counted of days of accesses, at each of `times`, s since 1970.

    Of two times the first is that of a state to be carried on, so later reads alone are kept.
    """

    times: Sequence[int]
    cycle_s: int
    demand_sources: Mapping[str, str]

    @property
    def since_s(self) -> int | None:
        """The time of the state that is carried on, if any."""
        return self.times[0] if len(self.times) > 1 else None


class Engine(Protocol):
    """Where features and labels are computed, with the same result in each engine."""

    def read(self, accesses: Snapshot, days: Mapping[Key, Partition], counting: Counting) -> DaysRead:
        """Read `days` for states."""

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        """Replace the features, and then the state. Raises ConflictError, StaleInputError."""

    def features(self, tables: Tables, work: FeatureWork) -> Iterator[pa.Table]:
        """The features at each of `work.as_ofs`, one after the other; no state is written.

        They are rows of the features table without its partition columns, not all in memory at once. Texts
        may be coded.
        """

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        """Replace the labels of `work.partitions`. Raises ConflictError, StaleInputError."""


@dataclasses.dataclass(frozen=True)
class Written:
    """A table after a step: its rows at the given as_ofs, and the snapshot that contains them."""

    table: str
    as_ofs: int
    rows: int
    snapshot: str


def written(snapshot: Snapshot, as_ofs: Sequence[int]) -> Written:
    """The summary of a table after a step."""
    labels = {as_of_label(at) for at in as_ofs}
    n_rows = sum(part.n_rows for key, part in snapshot.partitions.items() if key[1] in labels)
    return Written(snapshot.table.name, len(as_ofs), n_rows, snapshot.id[:12])


def check_on_grid(as_ofs: Sequence[int], cycle_s: int) -> None:
    """Raise InputError unless every as_of is the start of a cycle."""
    for at in as_ofs:
        if at % cycle_s:
            raise InputError(
                f"{as_of_label(at)} is not on the grid of cycles; the last one before it is "
                f"{as_of_label(at - at % cycle_s)}"
            )


@dataclasses.dataclass(frozen=True)
class Engines:
    """This process for up to `local_up_to` rows, else Spark; always Spark where a cluster is configured."""

    local_up_to: int
    settings: SparkSettings

    @classmethod
    def of(cls, settings: Settings) -> Engines:
        """As configured by `[features] local_up_to` and `[spark]`."""
        return cls(settings.features.local_up_to, settings.spark)

    def is_local(self, n_rows: int) -> bool:
        """Whether `n_rows` rows are computed in this process."""
        is_cluster = is_submitted() or not self.settings.master.startswith("local")
        return n_rows <= self.local_up_to and not is_cluster

    def engine(self, n_rows: int) -> Engine:
        """The engine for `n_rows` rows of accesses: this process, or Spark."""
        from jobs.loop.train.local_engine import LocalEngine  # noqa: PLC0415  each engine is loaded where it is used

        if self.is_local(n_rows):
            return LocalEngine()
        from jobs.loop.train.spark_engine import SparkEngine  # noqa: PLC0415

        return SparkEngine(self.spark())

    def spark(self) -> SparkSession:
        """Spark, started if it does not run."""
        from jobs.ground.spark.session import spark_session  # noqa: PLC0415

        return spark_session(self.settings)

    def check(self, tables: Tables) -> None:
        """Raise ServiceError if Spark may be needed for the accesses in `tables`, and cannot start here."""
        if not self.is_local(tables.head(ACCESSES).n_rows):
            check_spark()


@dataclasses.dataclass(frozen=True)
class RegionData:
    """A region's tables, specification of features, and sources of demand (none: all accesses count)."""

    engines: Engines
    tables: Tables
    spec: FeatureSpec
    region: str
    demand_sources: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, *, sample_share: float = 1.0) -> RegionData:
        """As configured; `sample_share`: if below 1, of samples of the candidates."""
        spec = dataclasses.replace(settings.features.spec, sample_share=sample_share)
        tables, engines = Tables.of(settings), Engines.of(settings)
        return cls(engines, tables, spec, settings.region.name, settings.sources.demand)

    def engine(self, days: Mapping[Key, Partition]) -> Engine:
        """The engine for `days` of accesses."""
        return self.engines.engine(sum(part.n_rows for part in days.values()))
