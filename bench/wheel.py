"""Install the wheel in an empty environment, with nothing else, and run the command from it.

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
    """Print how long each step took; fails where a step fails."""
    constraints = ROOT / "conf" / "constraints" / f"py{sys.version_info[0]}{sys.version_info[1]}.txt"
    with tempfile.TemporaryDirectory(prefix="cachecast-") as folder:
        python = Path(folder, "env", "bin", "python")
        wheels = Path(folder, "wheels")
        step("build", sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, ROOT)
        step("environment", sys.executable, "-m", "venv", Path(folder, "env"))
        (wheel,) = wheels.glob("cachecast-*.whl")
        step("install", python, "-m", "pip", "install", "-q", "-c", constraints, wheel)
        step("--help", python.with_name("cachecast"), "--help", cwd=folder)
        step("doctor", python.with_name("cachecast"), "doctor", cwd=folder)


def step(name: str, *command: str | Path, cwd: str | Path = ROOT) -> None:
    """Run one command and print its time."""
    started = time.monotonic()
    subprocess.run([str(word) for word in command], check=True, cwd=cwd, stdout=subprocess.DEVNULL)
    print(f"{name:12} {time.monotonic() - started:6.1f} s")


if __name__ == "__main__":
    main()
