"""A drop folder that a hostile neighbour fills: only plain files are read, all else is counted."""

import gzip
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulls import DAY, LOCAL, PACKED, pulled

from features.common import files, input_files
from features.common.errors import InputError, NotPlainError
from features.common.input_files import InputFile
from features.schema import ACCESSES, REJECTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull
from jobs.loop.ingest.pull_input import Request
from jobs.loop.ingest.queues.answers import read_answer
from jobs.loop.ingest.sources import Site, lines, local
from jobs.loop.ingest.spark_engine import SparkEngine

GOLDEN = Path(__file__).parents[3] / "golden/pull"
TOKEN = "0123456789abcdef-the-operators-token"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    path = tmp_path / "secret" / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


@pytest.fixture
def drop(tmp_path: Path, secret: Path) -> Iterator[Path]:
    """A folder with one of each kind."""
    folder = tmp_path / "drop"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "day=1").symlink_to(secret.parent)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "x.csv").mkdir()
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.jsonl"))
        yield folder


def put_plain(folder: Path, source: str) -> None:
    """A good file of the source."""
    seed = sorted(path for path in (GOLDEN / source).rglob("input.*") if path.is_file())[0]
    (folder / f"plain{seed.suffix}").write_bytes(seed.read_bytes())


REFUSED = {
    "not a plain file: a folder": 1,
    "not a plain file: a link": 3,
    "not a plain file: a pipe": 1,
    "not a plain file: a socket": 1,
}


def everything_in(tables: Tables) -> str:
    """All that can be read in the tables afterwards."""
    return "".join(
        repr(tables.read_arrow(table).to_pylist()) for table in (ACCESSES, REJECTS) if tables.exists(table)
    )


@pytest.mark.parametrize("source", ["rucio_traces", "xcache_gstream", "xrootd_fstream"])
@pytest.mark.parametrize("form", ["{}", "{}/*"])
def test_what_is_no_plain_file_is_counted_and_the_rest_is_read(
    tables: Tables, drop: Path, source: str, form: str
) -> None:
    put_plain(drop, source)
    summary = pulled(tables, source, form.format(drop))
    refused = {why: n for why, n in summary.n_rejected.items() if why.startswith("not a plain file")}
    # A folder that a glob names is looked into.
    assert refused | {"not a plain file: a folder": 1} == REFUSED
    assert summary.n_new > 0
    assert summary.n_rows == summary.n_new + summary.n_duplicates + sum(summary.n_rejected.values())
    assert TOKEN not in everything_in(tables)
    inputs = [row["input"] for row in tables.read_arrow(REJECTS).to_pylist()]
    assert any(path.endswith("/drop/link.jsonl") for path in inputs)


@pytest.mark.parametrize("source", ["rucio_traces", "xcache_gstream"])
def test_a_file_that_becomes_a_link_after_it_was_listed_is_not_read(
    tables: Tables, tmp_path: Path, secret: Path, source: str
) -> None:
    (tmp_path / "drop" / "k=1").mkdir(parents=True)
    place = tmp_path / "drop" / "k=1" / "a.jsonl"
    place.write_text("no trace\n")
    (mark,) = LOCAL.inputs(str(tmp_path / "drop"), whole=False)
    place.unlink()
    place.parent.rmdir()
    place.parent.symlink_to(secret.parent)
    (secret.parent / "a.jsonl").write_text(TOKEN)
    request = Request(source, str(tmp_path / "drop"), Site(day=DAY.isoformat()))
    summary = LOCAL.merge(tables, request, [mark.input.removeprefix("file:")])
    assert summary.n_rejected == {"not a plain file: behind a link": 1}
    assert TOKEN not in everything_in(tables)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_name_that_is_a_path_when_it_is_decoded_leads_nowhere(
    tables: Tables, tmp_path: Path, secret: Path, scheme: str
) -> None:
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop" / "%2e%2e%2fsecret%2ftoken").write_text("no trace\n")
    summary = pulled(tables, "rucio_traces", f"{scheme}{tmp_path / 'drop'}", new_only=True)
    assert summary.n_rejected == {"malformed JSON": 1}
    assert TOKEN not in everything_in(tables)


def test_a_file_that_becomes_a_link_after_spark_has_cut_it_ends_the_pull(
    spark_engine: SparkEngine, tables: Tables, tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drop").mkdir()
    place = tmp_path / "drop" / "a.jsonl"
    place.write_text("no trace\n")
    cut = lines.pieces

    def swapped(file: InputFile, most_bytes: int) -> list[lines.Piece]:
        pieces = cut(file, most_bytes)
        place.unlink()
        place.symlink_to(secret)
        return pieces

    monkeypatch.setattr(lines, "pieces", swapped)
    with pytest.raises(InputError, match=r"a\.jsonl: it is a link"):
        pulled(tables, "rucio_traces", tmp_path / "drop", engine=spark_engine)
    assert TOKEN not in everything_in(tables)


def test_the_lines_of_pieces_are_those_of_the_file(tmp_path: Path) -> None:
    rows = [f"line {i} {'x' * (i % 50)}" for i in range(2000)]
    text = "\r\n".join(rows[:1000]) + "\n" + "\n".join(rows[1000:])
    (tmp_path / "a").write_bytes(text.encode())
    pieces = lines.pieces(InputFile(tmp_path / "a"), 1000)
    assert len(pieces) > 40
    values = [value for batch in lines.batches(pieces, lines.fail) for value in batch["value"].to_pylist()]
    assert values == rows


def test_a_given_pipe_is_counted_and_is_no_queue(tables: Tables, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reasons = pulled(tables, "rucio_traces", tmp_path / "pipe").n_rejected
    assert reasons == {"not a plain file: a pipe": 1}
    with pytest.raises(NotPlainError, match="pipe is a pipe"):
        read_answer(str(tmp_path / "pipe"), token="", timeout_s=1)


def test_a_queue_is_read_from_a_plain_file_or_a_link_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(json.dumps([{"job_id": "1"}]))
    (tmp_path / "own.json").symlink_to("jobs.json")
    assert read_answer(str(tmp_path / "own.json"), token="", timeout_s=1) == [{"job_id": "1"}]


@pytest.mark.skipif(os.geteuid() != 0, reason="links of another account need root")
def test_a_link_of_another_account_is_no_input_and_no_queue(
    tables: Tables, tmp_path: Path, secret: Path
) -> None:
    link, words = tmp_path / "link", "link is a link of another account"
    link.symlink_to(secret)
    os.lchown(link, 65534, 65534)
    with pytest.raises(NotPlainError, match=words):
        pulled(tables, "rucio_traces", link)
    with pytest.raises(NotPlainError, match=words):
        read_answer(str(link), token="", timeout_s=1)


def test_a_maze_of_folders_is_counted_and_a_name_that_is_no_text_is_named(
    tables: Tables, tmp_path: Path
) -> None:
    maze = tmp_path / "maze"
    maze.mkdir()
    here = Path.cwd()
    os.chdir(maze)
    try:
        for _ in range(2000):
            Path("a=b").mkdir()
            os.chdir("a=b")
    finally:
        os.chdir(here)
    try:
        assert pulled(tables, "rucio_traces", maze).n_rejected == {"not a plain file: a folder": 1}
    finally:
        subprocess.run(["rm", "-rf", str(maze)], check=True)  # deeper than Python's own removal can go
    (tmp_path / "names").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "names") + b"/a\xff.jsonl")).touch()
    with pytest.raises(InputError, match="not UTF-8"):
        pulled(tables, "rucio_traces", tmp_path / "names")


@pytest.mark.parametrize("source", ["rucio_traces", "xrootd_fstream"])
def test_what_unpacks_to_far_more_than_it_takes_is_refused_and_the_rest_is_read(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setattr(input_files, "_ALWAYS_ALLOWED_BYTES", 2**20)
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "a.jsonl.gz").write_bytes(gzip.compress(b"{" * 2**24))
    put_plain(drop, source)
    summary = pulled(tables, source, drop)
    assert summary.n_rejected["not a plain file: packed, and 200 times as long as it looks"] == 1
    assert summary.n_new > 0


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_small_file_of_far_too_many_lines_is_refused_and_the_rest_is_read(
    tables: Tables, tmp_path: Path, suffix: str
) -> None:
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / f"a.jsonl.{suffix}").write_bytes(PACKED[suffix](b"x\n" * 20_000_000))
    put_plain(drop, "rucio_traces")
    summary = pulled(tables, "rucio_traces", drop)
    assert summary.n_rejected["not a plain file: packed, and more lines than its bytes"] == 1
    assert summary.n_rows < 2_000_000
    assert summary.n_new > 0


def test_a_line_that_never_ends_is_cut_and_costs_no_more_than_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_bytes, with_line_feeds = list[int](), lines._with_line_feeds

    def counted(some: bytes) -> bytes:
        n_bytes.append(len(some))
        return with_line_feeds(some)

    monkeypatch.setattr(lines, "_with_line_feeds", counted)
    monkeypatch.setattr(lines, "MOST_LINE_BYTES", 2**20)
    monkeypatch.setattr(lines, "_CHUNK_BYTES", 2**16)
    (tmp_path / "a").write_bytes(b"x" * 2**24 + b"\n{}\n")
    lengths = [
        len(value.as_py())
        for some in lines.batches([lines.Piece(InputFile(tmp_path / "a"))], lines.fail)
        for value in some["value"]
    ]
    assert lengths == [2**20, 2]
    assert sum(n_bytes) < 2**24


def test_an_input_on_a_file_system_that_hangs_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "silent", lambda places: f"{places[0]} hangs")
    path = f"file://{tmp_path}/data/2026-*/x.jsonl"
    with pytest.raises(InputError, match=f"cannot read {re.escape(path)}: {tmp_path}/data hangs"):
        local.check_answers(path)
    with pytest.raises(InputError, match="hangs"):
        read_answer(str(tmp_path / "queue.json"), token="", timeout_s=1)
    settings = Settings.load(tables=str(tmp_path / "tables"), env={})
    with pytest.raises(InputError, match="hangs"):
        pull.run(settings, source="rucio_traces", path=path, day_s=0)
    local.check_answers("hdfs://nn/traces")  # not of this machine
