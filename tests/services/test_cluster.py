"""The same jobs on a real standalone cluster, and by spark-submit with a zip of the rooms: the same rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
import spark_cluster
from daemons import needed

from features.schema import HISTORIES
from features.times import as_of_label
from jobs.settings.tree import Settings
from jobs.spark import code_zip
from jobs.store.tables import Tables

ROOT = Path(__file__).parents[2]

SITE = """\
[tables]
root = "{root}"
[features]
cycle = "4h"
windows = ["4h", "1d", "3d"]
horizons = ["12h"]
candidates = "3d"
kept_at = 0
[plan]
horizon = "12h"
"""
MAIN = "from jobs.cli.main import main; main()"
START_S = 1_772_323_200
AS_OFS = [START_S + 2 * 86400, START_S + 2 * 86400 + 4 * 3600]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from needed("a Spark cluster", spark_cluster.running(tmp_path_factory.mktemp("cluster")))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings and the accesses of three small days, pulled by a local Spark."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "base.toml").write_text(SITE.format(root=folder / "tables"))
    cachecast(folder, "workload", "--scenario", "demo", "--days", "3", "--accesses", "3000", "--start",
              "2026-03-01", "--out", str(folder / "raw"), "--tables", str(folder / "tables"))  # fmt: skip
    return folder


def cachecast(site: Path, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-c", MAIN, arguments[0], "--conf", str(site), *arguments[1:]]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def written(site: Path) -> dict[str, pa.Table]:
    """The features and the states, in the order of their keys."""
    tables = Tables(str(site / "tables"))
    spec = Settings.load(site).features.spec
    found = {}
    for table in (spec.features_table, HISTORIES):
        rows = tables.read_arrow(table)
        assert rows.num_rows
        order = [*table.partition, *table.key]
        found[table.name] = rows.sort_by([(name, "ascending") for name in order])
    return found


def copy_of(site: Path, folder: Path) -> Path:
    """The same settings and accesses, and no features yet."""
    (folder / "base.toml").write_text((site / "base.toml").read_text().replace(str(site), str(folder)))
    for name in ("accesses", "files"):
        shutil.copytree(site / "tables" / name, folder / "tables" / name)
    return folder


@pytest.fixture(scope="module")
def local(site: Path) -> dict[str, pa.Table]:
    for as_of in AS_OFS:
        cachecast(site, "features", "--as-of", as_of_label(as_of))
    return written(site)


def test_a_cluster_of_two_workers_gives_the_same(
    cluster: str, site: Path, local: dict[str, pa.Table], tmp_path: Path
) -> None:
    there = copy_of(site, tmp_path)
    for as_of in AS_OFS:
        cachecast(
            there, "features", "--as-of", as_of_label(as_of), CACHECAST_SPARK__MASTER=cluster,
            CACHECAST_SPARK__CONF='{ "spark.executor.memory" = "600m" }',
        )  # fmt: skip
    found = written(there)
    for name, rows in local.items():
        assert found[name].equals(rows)


def test_spark_submit_with_the_zip_needs_no_installed_cachecast(
    cluster: str, site: Path, local: dict[str, pa.Table], tmp_path: Path
) -> None:
    there = copy_of(site, tmp_path)
    code_zip.write(tmp_path / "rooms.zip")
    bare = tmp_path / "python"  # without site, an installed cachecast cannot be found; the libraries can
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYTHONPATH": sysconfig.get_paths()["purelib"],
        "PYSPARK_PYTHON": str(bare),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    alone = subprocess.run(
        [bare, "-c", "import jobs"], env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert b"No module named 'jobs'" in alone.stderr
    for as_of in AS_OFS:
        done = subprocess.run(
            [submit, "--master", cluster, "--conf", "spark.executor.memory=600m",
             "--py-files", tmp_path / "rooms.zip", ROOT / "conf" / "deploy" / "submit.py",
             "features", "--conf", there, "--as-of", as_of_label(as_of)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    found = written(there)
    for name, rows in local.items():
        assert found[name].equals(rows)
