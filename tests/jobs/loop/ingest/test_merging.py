"""Merging rows, against plain loops: in whatever order and pieces they come, the same stays."""

import datetime as dt
import itertools
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from features.schema import ACCESSES, FILES, Table, arrow_schema
from jobs.loop.ingest.merging import merge
from jobs.loop.ingest.sources.workspace import opened, parsed_schema

Row = dict[str, Any]
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
N_BATCHES = 3


def moment(hours: int | None) -> dt.datetime | None:
    return None if hours is None else START + dt.timedelta(hours=hours)


def merged(table: Table, new: Sequence[Row], old: Sequence[Row], *, in_two_parts: bool = False) -> list[Row]:
    """What a workspace merges."""
    schema = parsed_schema(table)
    stored = pa.schema([*arrow_schema(table), *((name, pa.string()) for name in table.partition)])
    with opened(table) as space:
        space.put("given", ("reason", "sample", "input"), [pa.Table.from_pylist(list(new), schema=schema)])
        space.database.execute("INSERT INTO parsed BY NAME SELECT * FROM given")
        space.put("old", table.partition, [pa.Table.from_pylist(list(old), schema=stored)])
        merge(space, in_two_parts=in_two_parts, into="merged", old="old")
        columns = ", ".join(f'"{name}"' for name in [*table.column_names, *table.partition, "changed"])
        times = {field.name: field.type for field in stored}
        rows = space.select(f"SELECT {columns} FROM merged ORDER BY {table.key[0]}")
    fields = [pa.field(name, times.get(name, pa.bool_())) for name in rows.column_names]
    return rows.cast(pa.schema(fields)).to_pylist()


def without_changed(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "changed"} for row in rows]


def files(seed: int) -> list[list[Row]]:
    """Batches of versions of few files, with equal times and repeated rows among them."""
    rng = random.Random(seed)
    versions = []
    for did in (f"s:f{i}" for i in range(40)):
        for _ in range(rng.randint(1, 5)):
            known = rng.randint(0, 5)
            versions.append(
                {
                    **{"did": did, "scope": "s", "name": did[2:], "size_bytes": rng.randint(1, 2)},
                    "origins": rng.choice((None, ["A"], ["A", "B"])),
                    "known_at": moment(known),
                    "updated_at": moment(rng.choice((None, known, known + 2, known + 4))),
                }
            )
    rng.shuffle(versions)
    return [versions[i::N_BATCHES] + rng.sample(versions, 5) for i in range(N_BATCHES)]


def latest(versions: Sequence[Row]) -> Row:
    """What must stay of the versions of one file."""
    rows = [{**row, "updated_at": row["updated_at"] or row["known_at"]} for row in versions]
    rows.sort(
        key=lambda row: (row["updated_at"], row["size_bytes"], row["origins"] is not None, row["origins"])
    )
    return {**rows[-1], "known_at": min(row["known_at"] for row in rows)}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_file_keeps_its_first_moment_and_its_latest_content(seed: int) -> None:
    batches = files(seed)
    every = sorted(itertools.chain(*batches), key=lambda row: row["did"])
    groups = itertools.groupby(every, key=lambda row: row["did"])
    expected = {did: latest(list(versions)) for did, versions in groups}
    for order in ((0, 1, 2), (2, 0, 1)):
        table: list[Row] = []
        for number in order:
            table = without_changed(merged(FILES, batches[number], table))
        assert {row["did"]: {k: v for k, v in row.items() if v is not None} for row in table} == {
            did: {k: v for k, v in row.items() if v is not None} for did, row in expected.items()
        }
        again = merged(FILES, batches[order[1]], table)
        assert not any(row["changed"] for row in again)
        assert without_changed(again) == table


def test_changed_files_are_those_that_the_table_has_otherwise() -> None:
    def row(did: str, size: int, known: int, updated: int) -> Row:
        times = {"known_at": moment(known), "updated_at": moment(updated)}
        return {"did": did, "scope": "s", "name": did, "size_bytes": size, **times}

    old = [row("same", 1, 5, 5), row("older", 1, 5, 5), row("newer", 1, 5, 5), row("sooner", 1, 5, 5)]
    new = [row("same", 1, 5, 5), row("older", 2, 5, 4), row("newer", 2, 6, 6), row("sooner", 1, 3, 5)]
    rows = merged(FILES, new, old)
    assert {r["did"]: (r["changed"], r["size_bytes"], r["known_at"], r["updated_at"]) for r in rows} == {
        "same": (False, 1, moment(5), moment(5)),
        "older": (False, 1, moment(5), moment(5)),
        "newer": (True, 2, moment(5), moment(6)),
        "sooner": (True, 1, moment(3), moment(5)),
    }


def access(known: int, closed: int | None, read_bytes: int | None = None) -> Row:
    name = {"did": "s:f", "scope": "s", "name": "f", "source": "x", "event_id": "e"}
    times = {"accessed_at": START, "known_at": moment(known), "closed_at": moment(closed)}
    return {**name, **times, "day": "2026-03-01", "n_reads": 1, "read_bytes": read_bytes}


def test_an_access_that_ended_goes_before_the_same_without_its_end() -> None:
    versions = [access(1, None), access(3, 2), access(2, 2)]
    for order in itertools.permutations(versions):
        table: list[Row] = []
        for version in order:
            rows = merged(ACCESSES, [version], table)
            table = without_changed(rows)
        assert [(r["known_at"], r["closed_at"], r["changed"]) for r in rows] == [
            (moment(2), moment(2), order[-1] is versions[2])
        ]


def test_an_open_completed_by_its_close_stays_known_since_the_open() -> None:
    versions = [access(1, None), access(4, 3, 7), access(2, 3, 8)]
    for order in itertools.permutations(versions):
        table: list[Row] = []
        for version in order:
            table = without_changed(merged(ACCESSES, [version], table, in_two_parts=True))
        (last,) = table
        assert (last["known_at"], last["closed_at"], last["read_bytes"]) == (moment(1), moment(3), 7)
