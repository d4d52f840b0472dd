"""What an evaluation needs, checked before Spark is even imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from features.common.errors import InputError, SchemaError
from features.common.times import DAY_S, day_label, parse_day
from features.results import EVALUATIONS
from features.schema import ACCESSES
from jobs.ground.settings.tree import Settings
from jobs.ground.store.missing_table import no_access
from jobs.ground.store.tables import Tables
from jobs.loop.train.ready import learned_since_s
from replay.read.times import UNITS

LAST_S = 2**32
"""A time after all accesses."""

_NEEDED = ("did", "accessed_at", "size_bytes")


def to_evaluate(settings: Settings, *, accesses: Path | None, from_s: int, to_s: int | None) -> None:
    """Raise InputError or StaleInputError unless there are accesses before `from_s`, and from it to `to_s`.

    The times in `accesses`, a Parquet file, are only looked at if they are timestamps.
    """
    if to_s is not None and to_s < from_s:
        raise InputError(f"--to {day_label(to_s)} is before --from {day_label(from_s)}; exchange them")
    found = _days_of_tables(settings, from_s, to_s) if accesses is None else _days_of_file(accesses)
    if found is not None:
        check_days(*found, from_s=from_s)


def check_days(first_s: int, last_s: int, *, from_s: int) -> None:
    """Raise InputError unless accesses from `first_s` to `last_s` are both before and after `from_s`."""
    if not first_s < from_s <= last_s:
        raise InputError(
            f"there are accesses from {day_label(first_s)} to {day_label(last_s)}; --from "
            f"{day_label(from_s)} must leave some before it, to train on, and some after it"
        )


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise SchemaError unless accesses can be made of these columns of a file."""
    if missing := [name for name in _NEEDED if name not in names]:
        raise SchemaError(f"{path.name} has no column {missing[0]!r}; give a table of accesses")


def _days_of_tables(settings: Settings, from_s: int, to_s: int | None) -> tuple[int, int]:
    """The first second of the first day with accesses, and the last second of the last one."""
    tables = Tables(settings.tables.root)
    tables.check_writable(EVALUATIONS)
    first_s, last_s = learned_since_s(settings.features.spec, settings.training, at_s=from_s), to_s or LAST_S
    snapshot = tables.snapshot(ACCESSES)
    chosen = snapshot.select(since=day_label(first_s), until=day_label(last_s))
    days = [parse_day(key[0]) for key, part in chosen.items() if part.n_rows]
    if not days:
        last_s = to_s or from_s
        raise no_access(snapshot, first_s=from_s, last_s=last_s, before_s=from_s - first_s)
    return days[0], days[-1] + DAY_S - 1


def _days_of_file(path: Path) -> tuple[int, int] | None:
    """The first and the last second with an access, if the Parquet file at `path` has such times.

    They are read, not taken from the footer: Arrow ends the process over some damaged statistics.
    """
    if path.is_dir():
        return None
    if not path.is_file():
        raise InputError(f"{path.name} is not a plain file; give a Parquet file of accesses")
    try:
        file = pq.ParquetFile(path)
        check_columns(path, file.schema_arrow.names)
        groups = (file.read_row_group(i, columns=["accessed_at"]) for i in range(file.num_row_groups))
        ends = [end for group in groups for end in _ends(group["accessed_at"])]
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"cannot read {path.name} as Parquet: {first}; write it again") from None
    if not ends:
        return None
    if not 0 <= min(ends) <= max(ends) < LAST_S:
        raise InputError(
            f"{path.name}: accessed_at is from {min(ends)} to {max(ends)} s since 1970, beyond the times of "
            "accesses; correct or drop these rows"
        )
    return min(ends), max(ends)


def _ends(times: pa.ChunkedArray) -> list[int]:
    """The first and the last second of timestamps; nothing of other columns."""
    if not pa.types.is_timestamp(times.type):
        return []
    found = pc.min_max(times)
    return [found[end].value // UNITS[times.type.unit] for end in ("min", "max") if found[end].is_valid]
