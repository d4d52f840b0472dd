"""What a command leaves, whatever umask it inherits: nothing that others read or write."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from jobs.cli.main import main; main()"]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_others_read_and_write_nothing_that_a_command_leaves(tmp_path: Path, engine: str) -> None:
    trace = {"eventType": "get", "scope": "s", "filename": "f", "filesize": 1, "timeStart": 1, "timeEnd": 2}
    tmp_path.chmod(0o755)
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "t.jsonl").write_text(json.dumps(trace) + "\nno trace\n")
    env = {
        **{name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ},
        "HOME": str(tmp_path),
        "CACHECAST_CONF": str(tmp_path / "conf"),
        "CACHECAST_SOURCES__LOCAL_UP_TO": "4GB" if engine == "local" else "1",
        "CACHECAST_PUSH__JOURNAL": str(tmp_path / "out" / "journal.db"),
        "CACHECAST_TABLES__ROOT": str(tmp_path / "out" / "tables"),
        "CACHECAST_MLFLOW__URI": f"sqlite:///{tmp_path}/out/mlflow.db",
        "CACHECAST_METRICS__FOLDER": str(tmp_path / "metrics"),
    }
    for name in ("out", "origin", "cache", "conf", "conf/caches"):
        (tmp_path / name).mkdir()
    cache = {"name": "d", "kind": "directory", "url": f"{tmp_path}/cache", "origin": f"{tmp_path}/origin"}
    lines = [*(f'{key} = "{value}"' for key, value in cache.items()), "capacity = 1000"]
    (tmp_path / "conf" / "caches" / "d.toml").write_text("\n".join(lines))
    words = ["pull", "--source", "rucio_traces", "--input", str(tmp_path / "traces"), "--day", "2026-03-01"]
    for command in (words, ["status", "--json"]):
        subprocess.run([*COMMAND, *command], env=env, umask=0, check=False, timeout=200, capture_output=True)
    left = [path for path in (tmp_path / "out").rglob("*") if not path.is_symlink()]
    assert {path.suffix for path in left} >= {".parquet", ".db"}
    open_to_others = stat.S_IRWXO | stat.S_IWGRP
    assert [str(path) for path in left if stat.S_IMODE(path.stat().st_mode) & open_to_others] == []
    # node_exporter is another account.
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "metrics").iterdir()}
    assert modes == {0o644}
