"""Divides reads, files and stored states into parts, so that no dataset is in two of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import IntArray
from features.stream.events import usable
from features.stream.facts import Statements, of_catalogue
from features.stream.names import merged
from features.stream.parts import part_of
from features.stream.region import datasets
from features.stream.stored import ALONE, Stored


class DatasetParts(NamedTuple):
    """The part of each row, int[n] per table; -1: a catalogue file that belongs to no dataset."""

    reads: IntArray
    files: IntArray
    states: IntArray


def dataset_parts(
    reads: pa.Table, files: pa.Table, stored: Stored, n_parts: int, *, cycle_s: int
) -> DatasetParts:
    """Which of `n_parts` parts each row of the three tables goes to.

    A file's dataset is the one that `features.stream.region` counts it in, so parts can be worked on alone.
    """
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
    return DatasetParts(part[of_reads], part[of_files], part_of(entity, n_parts))
