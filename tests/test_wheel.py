"""The wheel: all rooms and settings are in it, and the command runs from it alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

from jobs.ground.settings.our_sources import GROUP, OURS

ROOT = Path(__file__).parents[1]
RUN = "import features, conf, sys; from jobs.cli.main import main; print(features.__file__); main()"


def test_the_command_runs_from_the_wheel_and_not_from_the_checkout(tmp_path: Path) -> None:
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True, timeout=180)
    (wheel,) = tmp_path.glob("cachecast-*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(unpacked)
    (facts,) = unpacked.glob("*.dist-info")
    brought = PathDistribution(facts).entry_points.select(group=GROUP)
    assert {one.name: one.value for one in brought} == OURS
    assert {"conf/base.toml", "conf/workloads/demo.toml", "cachecast/py.typed"} <= names
    assert {"jobs/operator/overview/frame.html", "jobs/operator/overview/style.css"} <= names
    assert {"jobs/pages/page.html", "jobs/pages/page.css", "jobs/pages/page.js"} <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "docs/"))]
    env = {"PYTHONPATH": str(unpacked), "PATH": "/usr/bin:/bin"}
    written, words = tmp_path / "written", [sys.executable, "-P", "-c", RUN, "files", "--out"]
    subprocess.run([*words, str(written)], cwd=tmp_path, env=env, check=True, capture_output=True)
    listed = ["git", "ls-files", "--full-name", "conf/deploy"]
    ours = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {f"conf/deploy/{path.relative_to(written)}" for path in written.rglob("*") if path.is_file()} == {
        *ours
    }
    again = subprocess.run(
        [*words, str(written)], cwd=tmp_path, env=env, check=False, capture_output=True, text=True
    )
    assert again.returncode == 1 and "is not empty" in again.stderr
    run = [sys.executable, "-P", "-c", RUN, "doctor", "--json", "--tables", str(tmp_path)]
    env = {"PYTHONPATH": str(unpacked), "PATH": "/usr/bin:/bin"}
    answer = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert answer.stdout.startswith(str(unpacked)), answer.stderr
    assert '"part": "tables"' in answer.stdout
