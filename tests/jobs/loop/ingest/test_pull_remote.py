"""Captures of caches on HDFS and S3: the same tables as from a folder of this machine, one file at a time."""

import gzip
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from folder_site import write_files
from monitoring import Sender, close
from pulls import PACKED, pulled

from features.common.errors import InputError, ServiceError
from features.schema import ACCESSES, REJECTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.filesystems import store_at
from jobs.ground.store.filesystems.remote import RemoteStore
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull
from jobs.loop.ingest.pull_input import PullSummary
from prefetch.xcache.events import frame

START_S = 1_772_400_000


def capture(*numbers: int) -> bytes:
    return b"".join(frame(START_S + n, 40_000, datagram(n)) for n in numbers)


def datagram(pseq: int) -> bytes:
    sender = Sender("h", 1094, "cache1", "S", START_S, 7, pseq)
    return sender.gstream(close(f"/store/{pseq}", 10**6, START_S + 5), ahead=0) + b"\0"


FILES = {
    "gstream-1.capture": capture(1, 2),
    "gstream-2.capture.gz": gzip.compress(capture(3)),
    "gstream-3.capture.zst": PACKED["zst"](capture(5)),
    "gstream-4.capture.part": capture(6),
    ".hidden.capture": capture(7),
    "day=2026-03-01/gstream-5.capture": capture(8),
    "aside/gstream-6.capture": capture(9),
}


@pytest.fixture(params=["hdfs", "s3", "local"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "captures")
    return f"{request.getfixturevalue(request.param)}/captures-{uuid.uuid4().hex}"


def put(folder: str, files: dict[str, bytes]) -> None:
    store: Any = store_at(folder)
    for name, content in files.items():
        if "://" not in folder:
            write_files(Path(folder), [name], content)
        else:
            store.make_folder(name.rpartition("/")[0])
            store._fs.pipe_file(store._path(name), content)


def new_in(tables: Tables, path: str, source: str = "xcache_gstream") -> PullSummary:
    return pulled(tables, source, path, new_only=True)


def names(tables: Tables) -> list[str]:
    return sorted(tables.read_arrow(ACCESSES)["name"].to_pylist())


def test_captures_are_read_where_they_are_in_their_order(folder: str, tables: Tables) -> None:
    put(folder, FILES)
    for n_new, n_duplicates in ((5, 0), (0, 5)):
        summary = pulled(tables, "xcache_gstream", folder)
        assert (summary.n_new, summary.n_duplicates, summary.n_rejected) == (n_new, n_duplicates, {})
        # 4, 6 and 7 are missing; the folder of another kind is not looked into.
        assert summary.n_lost == 3
    assert names(tables) == [f"/store/{n}" for n in (1, 2, 3, 5, 8)]


def test_a_glob_and_a_file_are_taken_and_only_what_is_new(folder: str, tables: Tables) -> None:
    put(folder, FILES)
    assert new_in(tables, f"{folder}/gstream-{{1,3}}*.capture*").n_new == 3
    assert new_in(tables, f"{folder}/gstream-1.capture").n_unchanged == 1
    summary = new_in(tables, folder)
    assert (summary.n_new, summary.n_unchanged) == (2, 2)
    put(folder, {"gstream-7.capture": capture(10), "gstream-1.capture": capture(1, 2, 11)})
    summary = new_in(tables, folder)
    assert (summary.n_new, summary.n_duplicates, summary.n_unchanged) == (2, 2, 3)
    assert new_in(tables, folder).n_rows == 0
    assert new_in(tables, f"{folder}/{{none*,gstream-1.capture}}").n_unchanged == 1
    with pytest.raises(InputError, match=r"/gstream-9\.capture: there is no such file"):
        new_in(tables, f"{folder}/{{gstream-1,gstream-9}}.capture")


@pytest.mark.parametrize("source", ["xcache_gstream", "xrootd_fstream"])
def test_a_folder_in_which_no_file_is_finished_yet_is_no_error(
    folder: str, tables: Tables, source: str
) -> None:
    put(folder, {"a.capture.part": capture(6)})
    for new in (True, False):
        assert pulled(tables, source, folder, new_only=new).n_rows == 0


def test_an_f_stream_in_several_places_is_the_same(folder: str, data: Path, tmp_path: Path) -> None:
    lines = gzip.decompress((data / "osdf_fstream_packets.jsonl.gz").read_bytes()).splitlines(keepends=True)
    half = len(lines) // 2
    put(folder, {"a.jsonl.gz": gzip.compress(b"".join(lines[:half])), "b.jsonl": b"".join(lines[half:])})
    here, whole = Tables(str(tmp_path / "here")), Tables(str(tmp_path / "whole"))
    new_in(here, folder, "xrootd_fstream")
    pulled(whole, "xrootd_fstream", data / "osdf_fstream_packets.jsonl.gz")
    assert rows(here) == rows(whole) and len(rows(here)) > 10
    assert new_in(here, folder, "xrootd_fstream").n_unchanged == 2


def rows(tables: Tables) -> list[dict[str, Any]]:
    accesses: pa.Table = tables.read_arrow(ACCESSES)
    return sorted(accesses.to_pylist(), key=lambda row: row["event_id"])


def test_a_broken_file_is_named_and_nothing_is_written(folder: str, tables: Tables) -> None:
    put(folder, {"gstream-1.capture": capture(1), "gstream-2.capture.gz": gzip.compress(capture(2))[:-20]})
    put(folder, {"f/a.jsonl.zst": PACKED["zst"](b"{}\n" * 1000)[:-4]})
    for path, source, name in (
        (folder, "xcache_gstream", "gstream-2.capture.gz"),
        (f"{folder}/f", "xrootd_fstream", "f/a.jsonl.zst"),
        (f"{folder}/f/nothing*", "xrootd_fstream", "f/nothing"),
    ):
        with pytest.raises(InputError, match=f"cannot read .*{folder}/{name}"):
            pulled(tables, source, path)
    assert not tables.exists(ACCESSES) and not tables.exists(REJECTS)


@pytest.fixture(params=["hdfs", "s3"])
def remote_folder(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue(request.param)}/captures-{uuid.uuid4().hex}"


def test_a_folder_that_vanishes_while_it_is_listed_loses_no_other(
    remote_folder: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(remote_folder, FILES)
    inside = RemoteStore.inside

    def vanishing(store: Any, place: Any) -> list[Any]:
        if place.path.endswith("day=2026-03-01"):
            store._fs.rm(place.path, recursive=True)
            raise FileNotFoundError(place.path)
        return inside(store, place)

    monkeypatch.setattr(RemoteStore, "inside", vanishing)
    assert new_in(tables, remote_folder).n_new == 4


def test_a_capture_that_vanishes_before_it_is_read_is_named_and_the_next_pull_reads_the_rest(
    remote_folder: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(remote_folder, {"gstream-7.capture": capture(1), "gstream-8.capture": capture(2)})
    fetch = RemoteStore.fetch

    def gone(store: Any, path: str, to: Path) -> None:
        if path.endswith("gstream-7.capture"):
            store._fs.rm(path)
        fetch(store, path, to)

    monkeypatch.setattr(RemoteStore, "fetch", gone)
    with pytest.raises(InputError, match=r"cannot read .*gstream-7.capture"):
        new_in(tables, remote_folder)
    assert new_in(tables, remote_folder).n_new == 1


def test_a_capture_that_is_replaced_while_it_is_read_is_read_again(
    remote_folder: str, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(remote_folder, {"gstream-1.capture": capture(1)})
    fetch = RemoteStore.fetch

    def replaced(store: Any, path: str, to: Path) -> None:
        fetch(store, path, to)
        put(remote_folder, {"gstream-1.capture": capture(1, 2)})

    monkeypatch.setattr(RemoteStore, "fetch", replaced)
    assert new_in(tables, remote_folder).n_new == 1
    monkeypatch.undo()
    assert new_in(tables, remote_folder).n_new == 1
    assert names(tables) == ["/store/1", "/store/2"]


def test_odd_names_are_read_as_they_are(folder: str, tables: Tables) -> None:
    odd = ["a%2e%2e.capture", "..b.capture", "c d+e&f;g.capture", "h\u00e9.capture", "%2e%2e%2fi.capture"]
    globs = ["a[1].capture", "{a,b}.capture", "*.capture", "j?#k.capture"]
    put(folder, {name: capture(n) for n, name in enumerate([*odd, *globs], start=1)})
    summary = new_in(tables, folder)
    assert (summary.n_new, summary.n_rejected) == (8, {})  # a name that begins with a dot is hidden
    for name in globs:
        assert pulled(tables, "xcache_gstream", f"{folder}/{name}").n_duplicates == 1
    assert pulled(tables, "xcache_gstream", f"{folder}/j?[#]k.*").n_duplicates == 1


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    settings = Settings.load(env={"CACHECAST_TABLES__ROOT": str(tmp_path / "tables")})
    for source, path, kind, reason in (
        ("xcache_cinfo", "hdfs://nn:8020/xc1", InputError, "files of this machine; copy them"),
        ("xcache_gstream", "webhdfs://nn:9870/x", InputError, "this machine, hdfs:// and s3a://"),
        ("xcache_gstream", "s3a://bucket/*", InputError, "s3a://bucket/prefix"),
        ("xrootd_fstream", "hdfs://127.0.0.1:9/x", ServiceError, "is it up"),
        ("rucio_traces", "s3a://KEY:s3cr3t@bucket/x", InputError, "s3a://bucket/x by a login in its URL"),
        ("rucio_traces", "s3a://KEY:s3cr3t/+s3cr3t@bucket/x", InputError, "s3a://bucket/x by a login"),
    ):
        with pytest.raises(kind, match=reason) as caught:
            pull.run(settings, source=source, path=path, day_s=START_S)
        assert "s3cr3t" not in str(caught.value)
