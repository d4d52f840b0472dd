"""What Spark's workers get, the rooms as a zip, and the files that they write once."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from features.schema import STATES, arrow_schema
from jobs.ground.spark import write_code
from jobs.ground.spark.exchange import Staging
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables


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


KEY = MomentKey.at(1_772_323_200, "r")


def test_only_the_files_of_the_attempt_that_counts_are_read(tables: Tables) -> None:
    row = {"kind": "file", "entity": "s:a", "dataset": "s:d", "last_read_s": 0.0, "numbers": b"12345678"}
    rows = KEY, pa.Table.from_pylist([row], arrow_schema(STATES))
    staging = Staging.of(tables, STATES)
    (lost,), (committed,) = (list(staging.written([rows])) for _ in range(2))
    assert (lost.file.key, lost.file.folder) == (committed.file.key, committed.file.folder)
    assert lost.file.name != committed.file.name
    tables.commit(STATES, [committed.file], base=None)
    assert tables.read_arrow(STATES)["entity"].to_pylist() == ["s:a"]
