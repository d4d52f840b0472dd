"""Install the wheel in empty environments, one per extra, and reach the first plan with nothing else.

bench/wheel.py [WHEEL]: without one it is built from the checkout.

Then the controller is upgraded, from the last tag (before the first release: from this wheel) to a version
made of the checkout with a later number, and goes on with the tables, journal and models that it has.

Prints what each environment takes on the disk. The commands run in an empty home, with a PATH and without any
variable of this environment, so that nothing of the checkout helps. Exit code 1 if a step fails.

Needs the environment that `make verify` makes: .venv/bin/python bench/wheel.py
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEM = "/usr/local/bin:/usr/bin:/bin"
CAPACITY, DAY_S = "2GB", 86400
EXTRAS = {"": "a replay", "cache": "a cache's host", "controller": "a controller", "airflow,cache": "Airflow"}
"""What each environment is for."""
SMALL = {
    "CACHECAST_FEATURES__CYCLE": "12h",
    "CACHECAST_FEATURES__HORIZONS": '["1d"]',
    "CACHECAST_FEATURES__CANDIDATES": "3d",
    "CACHECAST_TRAINING__EVERY": "12h",
    "CACHECAST_TRAINING__SPAN": "5d",
    "CACHECAST_TRAINING__LEARNERS": '["lightgbm"]',
    "CACHECAST_TRAINING__TREES": "20",
    "CACHECAST_PLAN__HORIZON": "1d",
    "CACHECAST_PLAN__PREFETCH_SHARE": "1",
}
"""Variables of the environment: a site with a week of records. Everything else is as shipped."""
NO_PROOF = {"CACHECAST_TRAINING__ORDER": "false", "CACHECAST_MLFLOW__SERVE": '["candidate"]'}
"""A week is no time to prove a model."""


def main() -> None:
    """Print the sizes, and how long each step took; fails where a step fails."""
    with tempfile.TemporaryDirectory(prefix="cachecast-") as name:
        folder = Path(name)
        wheel = Path(sys.argv[1]).resolve() if sys.argv[1:] else built(ROOT, folder / "wheel")
        (folder / "namespace").mkdir()
        scan = ["scan", "--cache", "xc1", "--namespace", "namespace", "--tables", "tables"]
        for extra, what in EXTRAS.items():
            first = released(folder) or wheel if extra == "controller" else wheel
            python = installed(first, extra, what, folder / "env")
            if extra == "airflow,cache":
                step("airflow", python, "-m", "airflow", "version", cwd=folder)
            elif extra == "controller":
                first_plan(python, folder / "site")
                upgraded(python, folder)
            else:
                step("scan", python.with_name("cachecast"), *scan, cwd=folder)
            shutil.rmtree(folder / "env")


def built(checkout: Path, folder: Path) -> Path:
    """The wheel of a checkout."""
    step("build", sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, checkout)
    (wheel,) = folder.glob("cachecast-*.whl")
    return wheel


def git(*words: str) -> str:
    """What git prints in the checkout, empty where it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    return "" if done.returncode else done.stdout.strip()


def copied(tree: str, folder: Path) -> Path:
    """A copy of what git has as `tree`."""
    archive = subprocess.run(["git", "archive", tree], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def released(folder: Path) -> Path | None:
    """The wheel of the last tag; None: there was no release yet."""
    tag = git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    return built(copied(tag, folder / tag), folder / f"wheel-{tag}") if tag else None


def upgraded(python: Path, folder: Path) -> None:
    """The site goes on with a later version: what was pushed stays so, and is not pushed again."""
    site, command = folder / "site", python.with_name("cachecast")
    later = copied(git("stash", "create") or "HEAD", folder / "later")
    setup = (later / "setup.py").read_text()
    (later / "setup.py").write_text(setup.replace('version="', 'version="1!', 1))
    push: list[str | Path] = [
        command,
        "push",
        "run",
        "--cache",
        "cache",
        "--unproven",
        "--json",
        "--conf",
        "site.toml",
    ]
    before = json.loads(step("push", *push, cwd=site))
    assert before["pushed"] and not before["failed"], f"the first push: {before}"
    wheel = built(later, folder / "wheel-later")
    step("upgrade", python, "-m", "pip", "install", "-q", "--no-deps", wheel)
    assert "1!" in step("version", command, "--version", cwd=site), "it is not upgraded"
    again = json.loads(step("push again", *push, cwd=site))
    assert not (again["pushed"] or again["failed"]), f"the push after the upgrade: {again}"
    for words in (["plan", "--cache", "cache"], ["push", "status", "--cache", "cache"]):
        step(words[0], command, *words, "--conf", "site.toml", cwd=site)
    print(f"{'':16} {before['pushed']} items pushed before the upgrade, none again after it")


def installed(wheel: Path, extra: str, what: str, env: Path) -> Path:
    """The Python of a new environment with the wheel; prints its size."""
    constraints = ROOT / "conf" / "constraints" / f"py{sys.version_info[0]}{sys.version_info[1]}.txt"
    python, requirement = env / "bin" / "python", f"{wheel}[{extra}]" if extra else wheel
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    step(what, python, "-m", "pip", "install", "-q", "-c", constraints, requirement)
    (packages,) = env.glob("lib/python*/site-packages")
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    n_packages = len([*packages.glob("*.dist-info")])
    print(
        f"{'':16} {size:6.0f} MB in {n_packages} packages: pip install 'cachecast[{extra}]'".replace("[]", "")
    )
    return python


def first_plan(python: Path, folder: Path) -> None:
    """From an empty folder to the first plan, as on a controller's first day."""
    folder.mkdir()
    now_s = int(time.time())
    as_of, today, first = (
        time.strftime(form, time.gmtime(at_s))
        for form, at_s in (
            ("%Y-%m-%dT%H:00:00Z", now_s - now_s % (DAY_S // 2)),
            ("%Y-%m-%d", now_s),
            ("%Y-%m-%d", now_s - 7 * DAY_S),
        )
    )
    command = [python.with_name("cachecast")]
    words = ["--days", "8", "--accesses", "6000", "--start", first, "--raw", "--out", "raw"]
    step("workload", *command, "workload", "--scenario", "demo", *words, cwd=folder)
    for record in (folder / "raw" / "files.jsonl").read_text().splitlines():
        file = json.loads(record)
        origin = folder / "origin" / file["name"].lstrip("/")
        origin.parent.mkdir(parents=True, exist_ok=True)
        with origin.open("wb") as content:
            content.truncate(file["bytes"])
    (folder / "cache").mkdir()
    values = ["--cache", "cache", "--origin", "origin", "--capacity", CAPACITY]
    step("init", *command, "init", *values, "--records", "raw/traces/*.jsonl", cwd=folder)
    conf = ["--conf", "site.toml"]
    for source, records in {"rucio_traces": "raw/traces/*.jsonl", "rucio_files": "raw/files.jsonl"}.items():
        pull = ["pull", "--source", source, "--input", records, "--day", today]
        step(f"pull {source}"[:16], *command, *pull, *conf, cwd=folder)
    at = ["--as-of", as_of, *conf]
    for line in (["cycle", "--train"], ["features"], ["predict"], ["plan", "--cache", "cache", "--json"]):
        printed = step(line[0], *command, *line, *at, cwd=folder)
    plan = json.loads(printed)
    assert plan["prefetch"] > 0, f"the first plan fetches nothing: {plan}"
    print(f"{'':16} the first plan fetches {plan['prefetch']} files and pins {plan['pin']}")


def step(name: str, *command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; its time is printed here. It has an empty home, and no variable but ours."""
    started = time.monotonic()
    words = [str(word) for word in command]
    pip = "pip" in words  # where packages come from is this machine's affair
    plain = {"PATH": f"{Path(words[0]).parent}:{SYSTEM}", "HOME": str(cwd)}
    env = None if pip else plain | SMALL | NO_PROOF
    done = subprocess.run(words, check=False, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{name}: {' '.join(words)}\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    print(f"{name:16} {time.monotonic() - started:6.1f} s", flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
