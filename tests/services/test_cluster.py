"""The same jobs on a real standalone cluster, on YARN, and by spark-submit with a zip: the same rows."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
import spark_cluster
import yarn_server
from cachecast_main import asked
from commands import COMMAND
from daemons import needed
from pyspark.sql import SparkSession

from features.common.times import as_of_label
from features.schema import STATES
from jobs.ground.settings.tree import Settings
from jobs.ground.spark import write_code
from jobs.ground.store.tables import Tables

pytestmark = [pytest.mark.long, pytest.mark.service]

ROOT = Path(__file__).parents[2]

SITE = """\
[tables]
root = "{root}"
[features]
cycle = "4h"
horizons = ["12h"]
candidates = "3d"
[plan]
horizon = "12h"
"""
START_S = 1_772_323_200
FIRST, SECOND = (as_of_label(START_S + 2 * 86400 + hours * 3600) for hours in (0, 4))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from needed("a Spark cluster", spark_cluster.running(tmp_path_factory.mktemp("cluster")))


@pytest.fixture(scope="module")
def pulled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings and the accesses of three small days, pulled by a local Spark; no features yet."""
    folder = tmp_path_factory.mktemp("pulled")
    (folder / "base.toml").write_text(SITE.format(root=folder / "tables"))
    asked("workload", "--conf", folder, "--scenario", "demo", "--days", "3", "--accesses", "3000", "--start",
          "2026-03-01", "--out", folder / "raw", "--tables", folder / "tables")  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def first(pulled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with the features at the first time, by a local Spark."""
    site = copy_of(pulled, tmp_path_factory.mktemp("first"))
    asked("features", "--conf", site, "--as-of", FIRST)
    return site


@pytest.fixture(scope="module")
def second(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with those at the second time, which carry the state of the first."""
    site = copy_of(first, tmp_path_factory.mktemp("second"))
    asked("features", "--conf", site, "--as-of", SECOND)
    return site


def copy_of(site: Path, folder: Path) -> Path:
    """The same settings and tables elsewhere."""
    (folder / "base.toml").write_text((site / "base.toml").read_text().replace(str(site), str(folder)))
    shutil.copytree(site / "tables", folder / "tables")
    return folder


def written(site: Path) -> dict[str, dict[str, Any]]:
    """The features and the states, in the order of their keys."""
    tables = Tables(str(site / "tables"))
    spec = Settings.load(site).features.spec
    by_table = {}
    for table in (spec.features_table, STATES):
        rows = tables.read_arrow(table)
        assert rows.num_rows
        order = [*table.partition, *table.key]
        rows = rows.sort_by([(name, "ascending") for name in order])
        by_table[table.name] = rows.to_pydict()
    return by_table


def check_same(site: Path, expected: Path) -> None:
    by_table = written(site)
    for name, rows in written(expected).items():
        assert by_table[name] == rows, name


def test_a_cluster_of_two_workers_carries_a_state_to_the_same_rows(
    cluster: str, first: Path, second: Path, tmp_path: Path
) -> None:
    environment = {
        "CACHECAST_SPARK__MASTER": cluster,
        "CACHECAST_SPARK__CONF": '{ "spark.executor.memory" = "600m" }',
    }
    check_second(copy_of(first, tmp_path), second, environment)


@pytest.mark.verify
def test_two_executors_of_yarn_carry_a_state_to_the_same_rows(
    first: Path, second: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for environment in needed("YARN", yarn_server.running(tmp_path_factory.mktemp("yarn"), memory_mb=600)):
        check_second(copy_of(first, tmp_path), second, environment)


def check_second(site: Path, second: Path, environment: dict[str, str]) -> None:
    """Compute the features at the second time elsewhere; they must be the same."""
    command = [*COMMAND, "features", "--conf", str(site), "--as-of", SECOND]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    check_same(site, second)


@pytest.mark.verify
def test_spark_submit_with_the_zip_needs_no_installed_cachecast(
    cluster: str, pulled: Path, first: Path, tmp_path: Path
) -> None:
    site = copy_of(pulled, tmp_path)
    write_code(tmp_path / "package.zip")
    bare = tmp_path / "python"  # without site, an installed cachecast cannot be found; the libraries can
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "PYSPARK_PYTHON": str(bare),
        "PYSPARK_DRIVER_PYTHON": str(bare),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    alone = subprocess.run(
        [bare, "-c", "import jobs"], env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert b"No module named 'jobs'" in alone.stderr
    done = subprocess.run(
        [submit, "--master", cluster, "--conf", "spark.executor.memory=600m", "--conf", "spark.cores.max=1",
         "--conf", f"spark.executorEnv.PYTHONPATH={environment['PYTHONPATH']}",
         "--py-files", tmp_path / "package.zip", ROOT / "conf" / "deploy" / "submit.py",
         "features", "--conf", site, "--as-of", FIRST],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    check_same(site, first)
