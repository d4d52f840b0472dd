"""The wheel: all rooms and settings are in it, and the command runs from it alone."""

import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

from jobs.ground.settings.our_sources import GROUP, OURS

ROOT = Path(__file__).parents[1]
ROOMS = ("cachecast", "dags", "features", "jobs", "models", "prefetch", "replay")
RUN = "import features, conf, sys; from jobs.cli.main import main; print(features.__file__); main()"


def listed(*folders: str) -> list[str]:
    """The files of the checkout, as git has them."""
    words = ["git", "ls-files", "--full-name", *folders]
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def test_the_command_runs_from_the_wheel_and_not_from_the_checkout(tmp_path: Path) -> None:
    """Built beside what an older build left behind, of which nothing comes into the wheel."""
    checkout = tmp_path / "checkout"
    for name in listed("setup.py", "pyproject.toml", "README.md", "conf", *ROOMS):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "build" / "lib" / "jobs").mkdir(parents=True)
    (checkout / "build" / "lib" / "jobs" / "gone.py").write_text("")
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(checkout)]
    subprocess.run([sys.executable, *build], check=True, capture_output=True, timeout=180)
    (wheel,) = tmp_path.glob("cachecast-*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(unpacked)
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == {name for name in listed("conf", *ROOMS) if not name.startswith("conf/constraints/")}
    (facts,) = unpacked.glob("*.dist-info")
    brought = PathDistribution(facts).entry_points.select(group=GROUP)
    assert {variable.name: variable.value for variable in brought} == OURS
    env = {"PYTHONPATH": str(unpacked), "PATH": "/usr/bin:/bin"}
    written, words = tmp_path / "written", [sys.executable, "-P", "-c", RUN, "files", "--out"]
    subprocess.run([*words, str(written)], cwd=tmp_path, env=env, check=True, capture_output=True)
    files = {f"conf/deploy/{path.relative_to(written)}" for path in written.rglob("*") if path.is_file()}
    assert files == set(listed("conf/deploy"))
    again = subprocess.run(
        [*words, str(written)], cwd=tmp_path, env=env, check=False, capture_output=True, text=True
    )
    assert again.returncode == 1 and "is not empty" in again.stderr
    run = [sys.executable, "-P", "-c", RUN, "doctor", "--json", "--tables", str(tmp_path)]
    answer = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert answer.stdout.startswith(str(unpacked)), answer.stderr
    assert '"part": "tables"' in answer.stdout
