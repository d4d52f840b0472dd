"""The zip of the rooms: importable by itself, and the same for the same code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jobs.ground.spark import write_code


def test_it_is_importable_and_holds_the_shipped_settings(tmp_path: Path) -> None:
    path = write_code(tmp_path / "package.zip")
    code = "from importlib import resources; import features.schema as s; print(s.__file__); " \
           "print(len(resources.files('conf').joinpath('base.toml').read_text()) > 1000)"  # fmt: skip
    environment = {"PYTHONPATH": f"{path}:{':'.join(p for p in sys.path if p.endswith('site-packages'))}"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    where, has_settings = done.stdout.split()
    assert where.startswith(str(path))
    assert has_settings == "True"


def test_equal_code_makes_equal_bytes(tmp_path: Path) -> None:
    first = write_code(tmp_path / "a.zip").read_bytes()
    assert write_code(tmp_path / "b.zip").read_bytes() == first
