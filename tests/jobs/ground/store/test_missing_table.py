"""Tables and days that are not there: the error names those that are, and the command that writes them."""

from __future__ import annotations

import dataclasses

import pytest

from features import results, schema
from features.common.times import parse_day
from features.schema import ACCESSES, Table
from jobs.cli.main import COMMANDS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import Key, Partition, Snapshot
from jobs.ground.store.schema_check import WRITTEN_BY, days_there, no_access, no_table


def accesses(*days: str) -> Snapshot:
    parts: dict[Key, Partition] = {(day,): Partition("p", 1, "d", ("f",)) for day in days}
    return Snapshot(ACCESSES, "/t", 1, "id", parts | {("2026-12-31",): Partition("p", 0, "d", ())})


def test_every_table_has_a_command_that_writes_it() -> None:
    spec = Settings.load(env={}).features.spec
    sample = dataclasses.replace(spec, sample_share=0.5)
    tables = [
        table for room in (schema, results) for table in vars(room).values() if isinstance(table, Table)
    ]
    tables += [spec.features_table, spec.labels_table, sample.features_table, sample.labels_table]
    assert {table.name for table in tables} == set(WRITTEN_BY)
    assert {command.split()[0] for command in WRITTEN_BY.values()} <= set(COMMANDS)


def test_a_missing_table_names_its_command_and_a_missing_root_the_option() -> None:
    assert "run `cachecast predict` first" in str(no_table("predictions", "/t", others=["accesses"]))
    assert "no other table: run `cachecast pull` first, or name" in str(no_table("accesses", "/t", others=[]))


@pytest.mark.parametrize(
    ("days", "words"),
    [
        ([], "there is none on any day"),
        (["2026-03-01"], "there are accesses of 2026-03-01"),
        (["2026-03-01", "2026-02-28"], "there are accesses of 2026-02-28 to 2026-03-01"),
        (["2026-03-01", "2026-03-03"], "there are accesses of 2026-03-01, 2026-03-03"),
        (
            [f"2026-03-{day:02}" for day in range(1, 30, 2)],
            "there are accesses of 2026-03-01, 2026-03-03, 2026-03-05, further days until 2026-03-29",
        ),
    ],
)
def test_days_are_told_in_spans(days: list[str], words: str) -> None:
    assert days_there(accesses(*days)) == words


def test_the_days_that_were_asked_for_are_named() -> None:
    one, two = parse_day("2026-01-01"), parse_day("2026-01-02")
    there = accesses("2026-03-01")
    assert str(no_access(there, first_s=one, last_s=one)).startswith(
        "there is no access on 2026-01-01; there"
    )
    assert "no access from 2026-01-01 to 2026-01-02;" in str(no_access(there, first_s=one, last_s=two))
