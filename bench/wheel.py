"""Install the wheel in an empty environment, as for a cache's host and then for a controller, and run it.

Needs the environment that `make verify` makes: .venv/bin/python bench/wheel.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Print how long each step took, and the sizes; fails where a step fails."""
    constraints = ROOT / "conf" / "constraints" / f"py{sys.version_info[0]}{sys.version_info[1]}.txt"
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        python = Path(folder, "env", "bin", "python")
        wheels = Path(folder, "wheels")
        step("build", sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT)
        step("environment", sys.executable, "-m", "venv", Path(folder, "env"))
        (wheel,) = wheels.glob("cachecast-*.whl")
        (Path(folder) / "namespace").mkdir()
        scan = ["scan", "--cache", "xc1", "--namespace", "namespace", "--tables", "tables"]
        for extra, words in {"cache": scan, "controller": ["doctor"]}.items():
            step(extra, python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[{extra}]")
            files = (path for path in Path(folder, "env").rglob("*") if path.is_file())
            print(f"{'':12} {sum(path.stat().st_size for path in files) / 1e6:6.0f} MB")
            step(words[0], python.with_name("cachecast"), *words, cwd=folder)


def step(name: str, *command: str | Path, cwd: str | Path = ROOT) -> None:
    """Run one command and print its time."""
    started = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, cwd=cwd, stdout=subprocess.DEVNULL)
    print(f"{name:12} {time.monotonic() - started:6.1f} s")


if __name__ == "__main__":
    main()
