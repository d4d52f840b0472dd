"""What an engine is asked for: features of a region at decision times, or labels of features."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from features.schema import Table
from features.spec import FeatureSpec
from jobs.store.keys import Key, MomentKey
from jobs.store.tables import Partition, Snapshot, Tables


@dataclasses.dataclass(frozen=True)
class FeatureWork:
    """Features at `as_ofs` (sorted), from accesses of `days`, and from the state `since`, if any.

    `keeps_state`: the state at the last as_of is written as well, and the states `older` are dropped.
    """

    spec: FeatureSpec
    region: str
    as_ofs: Sequence[int]
    demand_sources: Mapping[str, str]
    accesses: Snapshot
    days: Mapping[Key, Partition]
    since: MomentKey | None
    keeps_state: bool
    older: Collection[Key]

    @property
    def keys(self) -> list[MomentKey]:
        """The partitions of the features."""
        return [MomentKey.at(as_of_s, self.region) for as_of_s in self.as_ofs]


@dataclasses.dataclass(frozen=True)
class LabelWork:
    """Labels of the files in `wanted` partitions of `features`, from what was known before `until_s`.

    `hits`: did, at of the clairvoyant's hits (`jobs.train.clairvoyant_hits`); None: no label `kept`.
    """

    spec: FeatureSpec
    until_s: int
    demand_sources: Mapping[str, str]
    accesses: Snapshot
    days: Mapping[Key, Partition]
    features: Snapshot
    wanted: Mapping[Key, Partition]
    hits: pa.Table | None


class Engine(Protocol):
    """Where features and labels are computed, with the same result in each engine."""

    def write_features(self, tables: Tables, work: FeatureWork, *, base: Snapshot) -> Snapshot:
        """Replace the features, and then the state. Raises ConflictError, StaleInputError."""
        ...

    def write_labels(self, tables: Tables, work: LabelWork, *, base: Snapshot) -> Snapshot:
        """Replace the labels of `work.wanted`. Raises ConflictError, StaleInputError."""
        ...


def placed(rows: pa.Table, table: Table, key: Key) -> pa.Table:
    """`rows` with the partition columns of `table`."""
    for name, value in zip(table.partition, key, strict=True):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows
