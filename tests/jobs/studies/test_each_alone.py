"""Each study can be deleted alone: without its room, the rest of the house is imported."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
STUDIES = sorted(room.name for room in (ROOT / "jobs/studies").iterdir() if (room / "__init__.py").exists())
SHOWN_BY = {"simulate": ("jobs/local_site/demo",)}
"""What shows a study, and goes with it."""
ROOMS = ("dags", "features", "jobs", "models", "prefetch", "replay", "conf")
IMPORT_ALL = """
import importlib, os, pathlib, sys

def import_all():
    for path in sorted(pathlib.Path("jobs").rglob("*.py")):
        if path.stem != "__main__":
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))

whole, *houses = sys.argv[1:]
os.chdir(whole)
sys.path.insert(0, whole)
import_all()  # with what is installed, which the others then have
for name in [name for name in sys.modules if name.partition(".")[0] in ROOMS]:
    del sys.modules[name]
for house in houses:
    if (child := os.fork()) == 0:
        os.chdir(house)
        sys.path[0] = house
        import_all()
        sys.argv[1:] = ["-h"]
        from jobs.cli.main import main
        main()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, house
"""


def test_the_rest_of_the_house_is_imported_without_a_study(tmp_path: Path) -> None:
    assert SHOWN_BY.keys() <= set(STUDIES)
    for study in STUDIES:
        for room in ROOMS:
            shutil.copytree(ROOT / room, tmp_path / study / room, ignore=shutil.ignore_patterns("*.nb?"))
        for folder in (f"jobs/studies/{study}", *SHOWN_BY.get(study, ())):
            shutil.rmtree(tmp_path / study / folder)
    code = IMPORT_ALL.replace("ROOMS", repr(ROOMS))
    houses = [ROOT, *(tmp_path / study for study in STUDIES)]
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, houses)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
