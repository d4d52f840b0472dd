"""The summary of a table written by a step, and the check of decision times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from features.common.errors import InputError
from features.common.times import as_of_label
from jobs.store.tables import Snapshot


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
