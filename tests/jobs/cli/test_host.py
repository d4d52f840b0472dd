"""What a cache's host runs needs no more than `pip install 'cachecast[cache]'` brings."""

import functools
import importlib.metadata
import runpy
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
MODULES = (
    *("jobs.loop.ingest.scan", "jobs.ground.store.filesystems.hdfs", "jobs.ground.store.filesystems.s3"),
    *("jobs.loop.ingest.collect", "jobs.loop.ingest.bus", "jobs.operator.operate.prometheus"),
    *("jobs.loop.push.push", "psycopg", "jobs.loop.ingest.pull", "jobs.loop.ingest.local_engine"),
    *("jobs.loop.steward.steward", "jobs.loop.ingest.queue"),
    *("models.serving.bundle_files", "models.serving.registry"),  # a steward's learned order
)
BLOCKER = """\
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError("blocked: " + name, name=name)
sys.meta_path.insert(0, Blocker())
"""


@functools.cache
def set_up() -> dict[str, Any]:
    """What setup.py says."""
    metadata: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patched:
        tools = types.ModuleType("setuptools")  # which is not needed to run
        vars(tools).update(setup=lambda **arguments: metadata.update(arguments), find_packages=lambda **_: [])
        patched.setitem(sys.modules, "setuptools", tools)
        patched.chdir(ROOT)
        runpy.run_path("setup.py")
    return metadata


def needed_by(requirements: Sequence[str]) -> Iterator[str]:
    """The names of distributions that these need, and what they need in turn."""
    todo, visited = [Requirement(text) for text in requirements], set[str]()
    while todo:
        requirement = todo.pop()
        if str(requirement) in visited:
            continue
        visited.add(str(requirement))
        yield canonicalize_name(requirement.name)
        for text in importlib.metadata.distribution(requirement.name).requires or []:
            needs = Requirement(text)
            extras = [{"extra": extra} for extra in ("", *requirement.extras)]
            if needs.marker is None or any(needs.marker.evaluate(extra) for extra in extras):
                todo.append(needs)


@functools.cache
def blocker() -> str:
    """Code after which only what a cache's host has can be imported."""
    there = set(needed_by([*set_up()["install_requires"], *set_up()["extras_require"]["cache"]]))
    owners = importlib.metadata.packages_distributions()
    blocked = {
        package
        for package, names in owners.items()
        if not {canonicalize_name(name) for name in names} & {*there, "cachecast"}
    }
    assert {"pyspark", "airflow", "lightgbm", "sklearn", "scipy", "matplotlib", "rucio", "alembic"} <= blocked
    return BLOCKER.format(blocked=blocked)


def ran(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", blocker() + code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)


def test_what_runs_on_a_cache_s_host_loads_with_its_install() -> None:
    process = ran(f"import {', '.join(MODULES)}")
    assert process.returncode == 0, process.stderr[-2000:]


def test_captures_of_a_host_are_pulled_there_into_tables_elsewhere(tmp_path: Path) -> None:
    """Where Spark is installed, it writes to tables of other machines."""
    (tmp_path / "gstream.capture").touch()
    code = (
        "import sys\nfrom jobs.ground.store.tables import Tables\n"
        "from jobs.loop.ingest.pull import engine_for\n"
        "asked = dict(source='xcache_gstream', path=sys.argv[1], up_to_bytes=0, spark=None)\n"
        "print(type(engine_for(Tables('hdfs://nn:1/t'), **asked)).__name__)"
    )
    process = ran(code, str(tmp_path))
    assert process.stdout.strip() == "LocalEngine", process.stderr[-2000:]


def test_a_scan_and_a_command_that_needs_more(tmp_path: Path) -> None:
    """A command that the host's install lacks something for says what to install, in one line."""
    (tmp_path / "namespace").mkdir()
    main, tables = "from jobs.cli.main import main; main()", str(tmp_path / "tables")
    scanned = ran(
        main, "scan", "--namespace", str(tmp_path / "namespace"), "--cache", "xc1", "--tables", tables
    )
    assert scanned.returncode == 0, scanned.stderr[-2000:]
    refused = ran(main, "serve", "--tables", tables)
    assert refused.returncode == 1
    assert "pip install 'cachecast[controller]'" in refused.stderr and "Traceback" not in refused.stderr, (
        refused
    )
