"""The dataset that each file is counted in, so that rows can be divided by it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import IntArray
from features.stream.events import usable
from features.stream.facts import Statements, of_catalogue
from features.stream.names import merged
from features.stream.parts import part_of
from features.stream.region import datasets
from features.stream.stored import ALONE, Stored


class Homes(NamedTuple):
    """The part of each row's dataset; -1: a file of the catalogue that is in none."""

    reads: IntArray
    files: IntArray
    states: IntArray


def homes(reads: pa.Table, files: pa.Table, stored: Stored, n_parts: int, *, cycle_s: int) -> Homes:
    """The same dataset as `features.stream.region` has, of all that is known of some files."""
    columns = [stored.files["entity"], files["did"], reads["did"]]
    dids, (of_stored, of_files, of_reads) = merged(columns)
    from_s = usable(reads, cycle_s=cycle_s)
    by_reads = Statements(of_reads, from_s, reads, np.argsort(from_s, kind="stable"))
    by_catalogue = of_catalogue(files, of_files, cycle_s=cycle_s)
    dataset, _, names = datasets(stored.statements(of_stored), by_catalogue, by_reads, len(dids))
    alone = np.flatnonzero(dataset >= len(names))
    own = pc.binary_join_element_wise(dids.take(pa.array(alone)), "", ALONE)
    part = np.append(part_of(names, n_parts), -1)[np.where(dataset < len(names), dataset, -1)]
    part[alone] = part_of(own, n_parts)
    rows = stored.rows
    entity = pc.coalesce(rows["dataset"], rows["entity"])
    return Homes(part[of_reads], part[of_files], part_of(entity, n_parts))
