"""What an evaluation needs, checked before Spark is even imported."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from features.errors import InputError, SchemaError
from features.results import EVALUATIONS
from features.schema import ACCESSES
from features.times import DAY_S, day_label, parse_day
from jobs.settings.tree import Settings
from jobs.spark.java import check_spark
from jobs.store.absent import no_access
from jobs.store.tables import Tables

LAST_S = 2**32
"""A time after all accesses."""

_NEEDED = ("did", "accessed_at", "size_bytes")


def to_evaluate(settings: Settings, *, accesses: Path | None, from_s: int, to_s: int | None) -> None:
    """Raise InputError or StaleInputError unless there are accesses before `from_s`, and from it to `to_s`.

    The times in `accesses`, a Parquet file, are only looked at if its footer has them.
    """
    check_spark()
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


def since_s(settings: Settings, from_s: int) -> int:
    """The first accesses that an evaluation from `from_s` reads."""
    return from_s - max(settings.features.spec.history_s, settings.training.span)


def check_columns(path: Path, names: Sequence[str]) -> None:
    """Raise SchemaError unless accesses can be made of these columns of a file."""
    if missing := [name for name in _NEEDED if name not in names]:
        raise SchemaError(f"{path.name} has no column {missing[0]!r}; give a table of accesses")


def _days_of_tables(settings: Settings, from_s: int, to_s: int | None) -> tuple[int, int]:
    """The first second of the first day with accesses, and the last second of the last one."""
    tables = Tables(settings.tables.root)
    tables.check_writable(EVALUATIONS)
    snapshot, first_s, last_s = tables.snapshot(ACCESSES), since_s(settings, from_s), to_s or LAST_S
    chosen = snapshot.select(since=day_label(first_s), until=day_label(last_s))
    days = [parse_day(key[0]) for key, part in chosen.items() if part.n_rows]
    if not days:
        last_s = to_s or from_s
        raise no_access(snapshot, first_s=from_s, last_s=last_s, before_s=from_s - first_s)
    return days[0], days[-1] + DAY_S - 1


def _days_of_file(path: Path) -> tuple[int, int] | None:
    """The first and the last second with an access, if the footer of the Parquet file says so."""
    if path.is_dir():
        return None
    try:
        footer = pq.read_metadata(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"cannot read {path.name} as Parquet: {error}") from None
    check_columns(path, footer.schema.names)
    column = footer.schema.names.index("accessed_at")
    groups = [footer.row_group(i).column(column).statistics for i in range(footer.num_row_groups)]
    times = [time for one in groups if one and one.has_min_max for time in (one.min, one.max)]
    if not times or len(times) < 2 * len(groups) or not isinstance(times[0], dt.datetime):
        return None
    return _seconds(min(times)), _seconds(max(times))


def _seconds(time: dt.datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=dt.UTC)).timestamp())
