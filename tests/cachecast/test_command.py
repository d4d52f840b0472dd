"""The command finds its own packages, or says what hides them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = "from cachecast.__main__ import main; main()"


def started(*folders: Path, submitted: bool = False) -> subprocess.CompletedProcess[str]:
    """The command, or what is submitted to Spark, where Airflow or Spark put `folders` first on the path."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}
    program = [str(ROOT / "conf/deploy/submit.py")] if submitted else ["-P", "-c", RUN]
    words = [sys.executable, *program, "--version"]
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False, cwd="/", timeout=60)


@pytest.mark.parametrize("submitted", [False, True])
@pytest.mark.parametrize("theirs", ["models.py", "jobs/__init__.py", "dags/__init__.py", "conf.py"])
def test_a_package_of_the_site_that_hides_ours_is_named_in_one_line(
    tmp_path: Path, theirs: str, submitted: bool
) -> None:
    (tmp_path / theirs).parent.mkdir(exist_ok=True)
    (tmp_path / theirs).write_text("raise RuntimeError\n")
    answer = started(tmp_path, submitted=submitted)
    room = theirs.partition("/")[0].removesuffix(".py")
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"error: cachecast's package '{room}' is hidden by {tmp_path}/{theirs}: ")
    assert answer.stderr.count("\n") == 1


def test_folders_of_such_names_without_a_package_hide_nothing(tmp_path: Path) -> None:
    for name in ("jobs", "models", "dags"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").touch()
    assert started(tmp_path).stdout.startswith("cachecast ")
    assert started(tmp_path, submitted=True).stdout.startswith("cachecast ")
