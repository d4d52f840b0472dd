"""Install the wheel in empty environments, one per extra, and reach the first plan with nothing else.

bench/wheel.py [WHEEL]: without one it is built from the checkout.

Prints what each environment takes on the disk. The commands run in an empty home, with a PATH and without any
variable of this environment, so that nothing of the checkout helps. Exit code 1 if a step fails.

Needs the environment that `make verify` makes: .venv/bin/python bench/wheel.py
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
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
        if sys.argv[1:]:
            wheel = Path(sys.argv[1]).resolve()
        else:
            step("build", sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT)
            (wheel,) = folder.glob("cachecast-*.whl")
        (folder / "namespace").mkdir()
        scan = ["scan", "--cache", "xc1", "--namespace", "namespace", "--tables", "tables"]
        for extra, what in EXTRAS.items():
            python = installed(wheel, extra, what, folder / "env")
            if extra == "airflow,cache":
                step("airflow", python, "-m", "airflow", "version", cwd=folder)
            elif extra == "controller":
                first_plan(python, folder / "site")
            else:
                step("scan", python.with_name("cachecast"), *scan, cwd=folder)
            shutil.rmtree(folder / "env")


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
    (folder / "origin").mkdir()
    (folder / "cache").mkdir()
    given = ["--cache", "cache", "--origin", "origin", "--capacity", CAPACITY]
    step("init", *command, "init", *given, "--records", "raw/traces/*.jsonl", cwd=folder)
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
