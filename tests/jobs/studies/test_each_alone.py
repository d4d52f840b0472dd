"""Each study can be deleted alone: without its room, the rest of the house is imported."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STUDIES = sorted(room.name for room in (ROOT / "jobs/studies").iterdir() if (room / "__init__.py").exists())
SHOWN_BY = {"simulate": ("jobs/local_site/demo",)}
"""What shows a study, and goes with it."""
IMPORT_ALL = """
import importlib, pathlib
for path in sorted(pathlib.Path("jobs").rglob("*.py")):
    if path.stem != "__main__":
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
"""


@pytest.mark.parametrize("study", STUDIES)
def test_the_rest_of_the_house_is_imported_without_a_study(tmp_path: Path, study: str) -> None:
    for room in ("dags", "features", "jobs", "models", "prefetch", "replay", "conf"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("*.nb?"))
    for folder in (f"jobs/studies/{study}", *SHOWN_BY.get(study, ())):
        shutil.rmtree(tmp_path / folder)
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    for code in (IMPORT_ALL, "import sys; sys.argv[1:] = ['-h']; from jobs.cli.main import main; main()"):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
