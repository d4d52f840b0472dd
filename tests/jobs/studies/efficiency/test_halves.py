from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from cachecast_main import cachecast
from job_records import PIC, plant

from features.common.errors import InputError
from jobs.ground.store.tables import Tables
from jobs.studies.efficiency import halves

N_JOBS, N_TASKS, DAYS = 3000, 60, 14


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def fill(
    database: duckdb.DuckDBPyConnection, *, saved: float, nodes: int = 60, node_spread: float = 0.01
) -> None:
    """Jobs on nodes of two halves: those of `with` take `saved` less time; tasks and nodes differ."""
    rng = np.random.default_rng(5)
    node, task = rng.integers(0, nodes, N_JOBS), rng.integers(0, N_TASKS, N_JOBS)
    names = np.array([f"wn{k}.org" for k in range(nodes)])
    is_with = np.array([halves.half_of("spring", name) == halves.WITH for name in names])[node]
    of_node, of_task = 1 + node_spread * rng.standard_normal(nodes), 0.8 + 0.05 * rng.standard_normal(N_TASKS)
    cpu_s = 3600 * rng.lognormal(0, 0.4, N_JOBS)
    wall_s = cpu_s / (of_task[task] * of_node[node]) * np.where(is_with, 1 - saved, 1)
    start_us = (1772323200 + 86400 * rng.integers(0, DAYS, N_JOBS)) * 1_000_000
    columns = {
        **{"node": names[node], "task": [f"t{k}" for k in task], "cpu_s": cpu_s, "wall_s": wall_s},
        **{"cores": np.ones(N_JOBS, int), "failed": np.zeros(N_JOBS, bool), "remote_bytes": 10 * ~is_with},
        **{"started_at": pa.array(start_us, pa.timestamp("us")), "hit_bytes": 10 * is_with},
        **{"local_bytes": np.zeros(N_JOBS, int), "miss_bytes": np.zeros(N_JOBS, int)},
    }
    database.register("rows", pa.table(columns))
    database.execute("CREATE TABLE jobs AS SELECT * FROM rows")


def test_a_planted_saving_is_within_its_interval(database: duckdb.DuckDBPyConnection) -> None:
    fill(database, saved=0.05)
    saving = halves.effect(database, "spring", DAYS)
    assert saving.saved_lower_share < 0.05 < saving.saved_upper_share
    assert saving.saved_lower_share > 0
    assert saving.saved_upper_share - saving.saved_lower_share < 0.03
    assert [half.through_cache_share for half in saving.halves] == [1, 0]
    assert sum(half.nodes for half in saving.halves) == 60
    assert 1 <= saving.days_needed <= DAYS


def test_no_number_of_days_helps_where_nodes_differ_too_much(database: duckdb.DuckDBPyConnection) -> None:
    fill(database, saved=0.0, node_spread=0.1)
    saving = halves.effect(database, "spring", DAYS)
    assert saving.saved_lower_share < 0 < saving.saved_upper_share
    assert saving.days_needed is None


def test_few_nodes_have_no_bounds_and_one_half_no_effect(database: duckdb.DuckDBPyConnection) -> None:
    fill(database, saved=0.0, nodes=8)
    assert halves.effect(database, "spring", DAYS).saved_lower_share is None
    database.execute(
        f"DELETE FROM jobs WHERE node <> '{database.sql('SELECT min(node) FROM jobs').fetchall()[0][0]}'"
    )
    with pytest.raises(InputError, match="no job of a known node with"):
        halves.effect(database, "autumn", DAYS)


def test_one_absurd_job_decides_nothing(database: duckdb.DuckDBPyConnection) -> None:
    fill(database, saved=0.05)
    database.execute("UPDATE jobs SET cores = 4096, wall_s = 60 * 86400, cpu_s = 1 WHERE rowid = 0")
    assert halves.effect(database, "spring", DAYS).saved_lower_share is None


def test_nodes_of_failed_jobs_alone_do_not_count_and_no_time_is_no_half(
    database: duckdb.DuckDBPyConnection,
) -> None:
    fill(database, saved=0.0)
    database.execute("UPDATE jobs SET cpu_s = 900, wall_s = 1000")
    assert halves.effect(database, "spring", DAYS).days_needed == 1
    few = "SELECT DISTINCT node FROM jobs ORDER BY node LIMIT 12"
    database.execute(f"UPDATE jobs SET failed = node NOT IN ({few})")
    assert halves.effect(database, "spring", DAYS).saved_lower_share is None
    database.execute("UPDATE jobs SET wall_s = 0")
    with pytest.raises(InputError, match="with or without"):
        halves.effect(database, "spring", DAYS)


def test_the_command_gives_the_halves_of_nodes_and_compares_them(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("".join(f"WN{k}.pic.es\n\n" for k in range(100)))
    listed = cachecast("halves", "spring", "--nodes", tmp_path / "nodes")
    lines = [line.split() for line in listed.stdout.splitlines()]
    assert [node for node, _ in lines] == [f"WN{k}.pic.es" for k in range(100)]
    assert {half for _, half in lines} == {"with", "without"}
    plant(Tables(str(tmp_path / "tables")), PIC[:1])
    days = ("--from", "2026-03-01", "--to", "2026-03-14")
    compared = cachecast("halves", "spring", *days, "--tables", tmp_path / "tables").stdout
    assert f"with: {sum(half == 'with' for _, half in lines)} nodes" in compared
    assert "core hours saved" in compared
    assert "either --nodes or --from and --to" in cachecast("halves", "spring").stderr


def test_jobs_without_cpu_time_change_no_comparison(database: duckdb.DuckDBPyConnection) -> None:
    fill(database, saved=0.05)
    before = halves.effect(database, "spring", DAYS)
    database.execute("INSERT INTO jobs SELECT * REPLACE (NULL AS cpu_s) FROM jobs WHERE rowid < 500")
    database.execute(
        "INSERT INTO jobs SELECT * REPLACE (NULL AS cpu_s, NULL AS wall_s, NULL AS cores, "
        "NULL AS started_at, true AS failed) FROM jobs WHERE rowid < 500"
    )
    after = halves.effect(database, "spring", DAYS)
    assert after.saved_share == pytest.approx(before.saved_share)
    assert after.saved_lower_share == pytest.approx(before.saved_lower_share)
    assert sum(half.jobs for half in after.halves) == 4000
