"""The tables' promises, each kept on a local folder and on a real HDFS."""

import datetime as dt
import errno
import json
import multiprocessing
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hdfs_native.fsspec import HdfsFileSystem
from rejects_table import data_folders, rejects
from table_rows import filled
from waiting import PATIENCE_S

from features.common.errors import ConfigError, ConflictError, SchemaError, ServiceError, StaleInputError
from features.schema import CONTENTS, FILES, REJECTS, arrow_schema
from features.stream.names import joined
from jobs.ground.store.filesystems import read_parquet, store_at
from jobs.ground.store.filesystems.s3 import S3Store
from jobs.ground.store.tables import Tables, new_folder, read_partitions

DAY = "2026-03-01"


@pytest.fixture
def tables(root: str) -> Tables:
    return Tables(root)


def test_a_table_never_written_is_stale_input(tables: Tables) -> None:
    assert not tables.exists(REJECTS)
    with pytest.raises(StaleInputError, match="rejects"):
        tables.snapshot(REJECTS)


def test_rows_come_back_with_their_partition(tables: Tables) -> None:
    tables.replace_arrow(REJECTS, pa.concat_tables([rejects(DAY, 1, 2), rejects("2026-03-02", 3)]))
    assert tables.exists(REJECTS)
    back = tables.read_arrow(REJECTS)
    assert back.column_names == [*REJECTS.column_names, "day"]
    assert sorted(zip(back["day"].to_pylist(), back["n_rows"].to_pylist(), strict=True)) == [
        (DAY, 1),
        (DAY, 2),
        ("2026-03-02", 3),
    ]
    assert tables.snapshot(REJECTS).n_rows == 3
    assert tables.read_arrow(REJECTS, since="2026-03-02")["n_rows"].to_pylist() == [3]
    assert tables.read_arrow(REJECTS, until=DAY, columns=["day"]).to_pydict() == {"day": [DAY, DAY]}


def test_equal_content_is_no_new_commit_and_an_equal_id(tables: Tables) -> None:
    first = tables.replace_arrow(REJECTS, rejects(DAY, 1))
    assert tables.replace_arrow(REJECTS, rejects(DAY, 1)) == first
    assert len(data_folders(tables)) == 1
    assert Tables(f"{tables.root}-other").replace_arrow(REJECTS, rejects(DAY, 1)).id == first.id
    assert tables.replace_arrow(REJECTS, rejects(DAY, 2)).id != first.id


def test_as_of_is_encoded_in_the_path_and_read_alone(tables: Tables) -> None:
    moment = dt.datetime(2026, 3, 1, 4, tzinfo=dt.UTC)
    row = dict.fromkeys(CONTENTS.column_names) | {
        "cache": "c", "did": "s:n", "name": "n", "size_bytes": 1, "bytes_on_disk": 1,
        "complete": True, "open": False, "scanned_at": moment, "day": DAY,
    }  # fmt: skip
    data = pa.Table.from_pylist([row | {"as_of": f"{DAY}T0{h}:00:00Z"} for h in (0, 4)])
    snapshot = tables.replace_arrow(CONTENTS, data)
    assert all(":" not in part.path for part in snapshot.partitions.values())
    assert list(snapshot.select(as_of=f"{DAY}T04:00:00Z", owner="c")) == [(DAY, f"{DAY}T04:00:00Z", "c")]
    read = tables.read_arrow(CONTENTS, as_of=f"{DAY}T04:00:00Z")
    assert read["as_of"].to_pylist() == [f"{DAY}T04:00:00Z"]
    assert read["scanned_at"].to_pylist() == [moment]
    astray = data.slice(0, 1).set_column(data.schema.get_field_index("day"), "day", pa.array(["2099-01-01"]))
    tables.replace_arrow(CONTENTS, astray)
    assert [key[1] for key in tables.newest(CONTENTS, owner="c").partitions] == [f"{DAY}T04:00:00Z"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["reason"]), "'reason' is missing"),
        (lambda t: t.set_column(3, "n_rows", pa.array(["1"])), "'n_rows' is string, not int64"),
        (lambda t: t.set_column(0, "source", pa.array([None], pa.string())), "'source' holds 1 nulls"),
        (lambda t: t.set_column(5, "day", pa.array(["../../x"])), "day '../../x'"),
        (lambda t: t.set_column(5, "day", pa.array(["2026-3-1"])), "day '2026-3-1'"),
        (lambda t: t.set_column(5, "day", pa.array(["2026-02-30"])), "day '2026-02-30'"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(tables: Tables, change: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        tables.replace_arrow(REJECTS, change(rejects(DAY, 1)))
    assert not tables.exists(REJECTS)


def test_integers_widen_and_further_columns_are_dropped(tables: Tables) -> None:
    data = (
        rejects(DAY, 1).set_column(3, "n_rows", pa.array([1], pa.int16())).append_column("x", pa.array([1]))
    )
    tables.replace_arrow(REJECTS, data)
    assert tables.read_arrow(REJECTS).schema.field("n_rows").type == pa.int64()


def test_a_crash_before_the_commit_leaves_the_table_as_it_was(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tables.replace_arrow(REJECTS, rejects(DAY, 1))

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for where, naming in ((os, "link"), (HdfsFileSystem, "mv"), (S3Store, "put_if_absent")):
            patch.setattr(where, naming, crash)
        with pytest.raises(KeyboardInterrupt):
            tables.replace_arrow(REJECTS, rejects(DAY, 2))
    assert tables.snapshot(REJECTS) == before
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [1]
    assert tables.vacuum(REJECTS, grace_s=3600) == 0
    assert tables.vacuum(REJECTS, grace_s=-PATIENCE_S) == 1
    assert len(data_folders(tables)) == 1
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [1]


def test_what_a_full_disk_ended_takes_no_room(tables: Tables) -> None:
    def pieces() -> Iterator[tuple[tuple[str], pa.Table]]:
        yield (DAY,), rejects(DAY, 1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        tables.replace_each(REJECTS, pieces())
    assert data_folders(tables) == []


def test_an_older_base_loses(tables: Tables) -> None:
    base = tables.replace_arrow(REJECTS, rejects(DAY, 1))
    tables.replace_arrow(REJECTS, rejects(DAY, 2), base=base)
    with pytest.raises(ConflictError, match=DAY):
        tables.replace_arrow(REJECTS, rejects(DAY, 3), base=base)
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [2]
    tables.replace_arrow(REJECTS, rejects("2026-03-02", 4), base=base)
    assert sorted(tables.read_arrow(REJECTS)["n_rows"].to_pylist()) == [2, 4]


def test_what_was_replaced_since_its_base_is_not_dropped(tables: Tables) -> None:
    base = tables.replace_arrow(REJECTS, rejects(DAY, 1))
    now = tables.replace_arrow(REJECTS, rejects(DAY, 2))
    with pytest.raises(ConflictError, match=DAY):
        tables.replace_each(REJECTS, [], base=base, drop=base.partitions)
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [2]
    # What another run has dropped too is gone as it should be.
    for _ in range(2):
        assert not tables.replace_each(REJECTS, [], base=now, drop=now.partitions).partitions


@pytest.mark.parametrize("root", ["local", pytest.param("hdfs", marks=pytest.mark.service)], indirect=True)
def test_writers_of_one_partition_never_lose_an_update(tables: Tables) -> None:
    """Two processes each add 5 to one number, again after every conflict."""
    tables.replace_arrow(REJECTS, rejects(DAY, 0))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_increment, args=(tables.root, 5)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert tables.read_arrow(REJECTS)["n_rows"].to_pylist() == [10]
    assert tables.snapshot(REJECTS).number == 11


def _increment(root: str, times: int) -> None:
    tables = Tables(root)
    while times:
        base = tables.snapshot(REJECTS)
        n_rows = read_partitions(base, base.partitions)["n_rows"].to_pylist()[0]
        try:
            tables.replace_arrow(REJECTS, rejects(DAY, n_rows + 1), base=base)
            times -= 1
        except ConflictError:
            continue


def test_a_reader_never_sees_half(tables: Tables) -> None:
    """Two partitions are always replaced together by equal numbers; a reader hammers meanwhile."""
    days = (DAY, "2026-03-02")
    tables.replace_arrow(REJECTS, pa.concat_tables([rejects(day, 0, 0) for day in days]))
    readings: list[set[int]] = []
    done = threading.Event()

    def hammer() -> None:
        while not done.is_set():
            readings.append(set(tables.read_arrow(REJECTS)["n_rows"].to_pylist()))

    readers = [threading.Thread(target=hammer) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(1, 60 if tables.root.startswith("/") else 8):
        tables.replace_arrow(REJECTS, pa.concat_tables([rejects(day, n, n) for day in days]))
    done.set()
    for reader in readers:
        reader.join()
    assert len(readings) > 5
    assert all(len(numbers) == 1 for numbers in readings)


def test_what_was_removed_as_abandoned_is_not_committed(tables: Tables) -> None:
    before = tables.replace_arrow(REJECTS, rejects(DAY, 1))
    staged = tables.stage(REJECTS, folder := new_folder(), [((DAY,), rejects(DAY, 2))])
    tables.discard(REJECTS, folder)
    with pytest.raises(ConflictError, match="has been removed; run again"):
        tables.commit(REJECTS, staged, base=before)
    assert tables.snapshot(REJECTS) == before


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"id": "\xed\xa0\x80", "partitions": []}', b"[" * 100_000]
)
def test_a_damaged_commit_names_itself(local: Tables, content: bytes) -> None:
    local.replace_arrow(REJECTS, rejects(DAY, 1))
    Path(local.root, "rejects/_commits/000000000001.json").write_bytes(content)
    with pytest.raises(SchemaError, match=r"000000000001\.json is damaged"):
        local.snapshot(REJECTS)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ([["2026-13-01"]], r"day '2026-13-01' is not written as %Y-%m-%d"),
        ([["2026-03-01x" * 99]], r"day '2026-03-01x.* … .*' is not written as"),
        ([[DAY, "xc1"]], r"\('2026-03-01', 'xc1'\) is no partition of \('day',\)"),
        ([[20260301]], "fromisoformat"),
        ([[DAY], [DAY]], "a partition stands there twice"),
    ],
)
def test_a_key_that_somebody_edited_is_one_error_with_the_file(
    local: Tables, keys: list[list[Any]], what: str
) -> None:
    local.replace_arrow(REJECTS, rejects(DAY, 1))
    file = Path(local.root, "rejects/_commits/000000000001.json")
    commit = json.loads(file.read_text())
    commit["partitions"] = [commit["partitions"][0] | {"key": key} for key in keys]
    file.write_text(json.dumps(commit))
    with pytest.raises(SchemaError, match=rf"000000000001\.json is damaged \(.*{what}.*restore it") as caught:
        local.snapshot(REJECTS)
    assert len(str(caught.value)) < 600


def test_a_data_file_that_is_lost_or_damaged_is_told_in_one_line(local: Tables) -> None:
    local.replace_arrow(REJECTS, rejects(DAY, 1))
    (file,) = Path(local.root).rglob("*.parquet")
    whole = file.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for damaged in (
        b"",
        whole[:-5],
        whole[:8] + bytes(60) + whole[68:],
        whole[:footer] + b"\xff" * 40 + whole[-8:],
    ):
        file.write_bytes(damaged)
        with pytest.raises(ServiceError, match=r"table rejects: .*\.parquet is damaged: .*; restore it"):
            local.read_arrow(REJECTS)
    file.unlink()
    with pytest.raises(ServiceError, match=r"table rejects: .*\.parquet is missing; restore it"):
        local.read_arrow(REJECTS)


def test_one_flipped_bit_of_a_page_is_no_wrong_figure(local: Tables) -> None:
    values = list(range(0, 1400, 7))
    local.replace_arrow(REJECTS, rejects(DAY, *values))
    (file,) = Path(local.root).rglob("*.parquet")
    whole = file.read_bytes()
    column = pq.read_metadata(file).row_group(0).column(REJECTS.column_names.index("n_rows"))
    end = column.dictionary_page_offset + column.total_compressed_size
    for place in range(column.dictionary_page_offset, end):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            assert local.read_arrow(REJECTS, columns=["n_rows"])["n_rows"].to_pylist() == values
        except ServiceError as error:
            assert re.search(r"table rejects: .*\.parquet is damaged: .*; restore it", str(error))


def test_one_flipped_bit_of_a_footer_turns_no_column_to_nulls(local: Tables) -> None:
    local.replace_arrow(REJECTS, rejects(DAY, 1))
    (file,) = Path(local.root).rglob("*.parquet")
    whole, rows = file.read_bytes(), local.read_arrow(REJECTS)
    for place in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        file.write_bytes(flipped)
        with suppress(ServiceError):
            assert local.read_arrow(REJECTS) == rows, place


def test_what_else_lies_in_the_root_is_no_table(tables: Tables) -> None:
    store = store_at(tables.root)
    assert store.put_if_absent("notes.txt", b"not a table")
    assert not store.put_if_absent("notes.txt", b"a second")
    assert store.read("notes.txt") == b"not a table"
    before = tables.names()
    assert "notes.txt" not in before
    tables.replace_rows(REJECTS, [], ("2026-03-01",))
    assert sorted({*before, REJECTS.name}) == tables.names()


NO_ROOTS = ["hdfs://no-nameservice/x", "hdfs://nn:99999/x", "hdfs://[nn/x", "s3a://b/x?y", "s3a://b/x#y"]
LOGINS = ["hdfs://u:s3cr3t@nn:8020/x", "s3a://KEY:s3cr3t@b/x", "s3a://KEY:s3cr3t/+s3cr3t@b/x"]


@pytest.mark.parametrize("root", [*NO_ROOTS, *LOGINS])
def test_a_root_that_names_no_place_is_told_in_one_line_without_a_login(root: str) -> None:
    with pytest.raises(ConfigError, match=r"tables\.root") as caught:
        store_at(root)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("root", ["file", "file/tables"])
def test_a_folder_that_cannot_hold_tables_is_told_in_one_line(tmp_path: Path, root: str) -> None:
    (tmp_path / "file").touch()
    tables = Tables(str(tmp_path / root))
    for use in (tables.check_writable, lambda: tables.replace_arrow(REJECTS, rejects(DAY, 1))):
        with pytest.raises(ServiceError, match=r"^tables: .*; mend that, or name other tables by --tables"):
            use()


def test_a_folder_of_another_user_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    tables, words = Tables(str(tmp_path / "theirs")), "theirs.* may not be used by this user; mend that"
    privileged = os.geteuid() == 0
    if privileged:
        os.seteuid(65534)
    try:
        with pytest.raises(ServiceError, match=words):
            tables.replace_arrow(REJECTS, rejects(DAY, 1))
    finally:
        if privileged:
            os.seteuid(0)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ServiceError, match=words):
        tables.check_writable()


def test_texts_read_as_codes_are_the_same_texts(tables: Tables) -> None:
    """More distinct texts than a Parquet dictionary holds, in two files, with nulls."""
    n = 60_000
    dids = [f"s:{k:030}" for k in range(n)]
    datasets = [None if k % 3 else f"s:data{k % 7}" for k in range(n)]
    known_at = pa.scalar(0, pa.timestamp("us", tz="UTC"))
    same = {"scope": "s", "name": "n", "size_bytes": 0, "known_at": known_at}
    rows = filled(FILES, n, same | {"did": dids, "dataset": datasets})
    head = tables.replace_each(FILES, [((), rows[: n // 2]), ((), rows[n // 2 :])])
    names = ["did", "dataset", "size_bytes"]
    plain = read_partitions(head, head.partitions, names)
    read = read_partitions(head, head.partitions, names, coded=names)
    assert [pa.types.is_dictionary(kind) for kind in read.schema.types] == [True, True, False]
    assert all(len(chunk.dictionary.unique()) == len(chunk.dictionary) for chunk in read["did"].chunks)
    assert joined(read).cast(plain.schema).equals(plain.combine_chunks())
    nothing = read_partitions(head, {}, names, coded=names)
    assert (nothing.num_rows, nothing.schema) == (0, read.schema)


def test_a_column_that_a_file_lacks_is_null_when_read_as_codes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"did": ["a", "b"]}), tmp_path / "old.parquet")
    schema = arrow_schema(FILES, ["did", "dataset"])
    rows = read_parquet(str(tmp_path / "old.parquet"), ["dataset", "did"], schema)
    assert rows.to_pydict() == {"dataset": [None, None], "did": ["a", "b"]}


def test_codes_of_a_dictionary_that_lists_a_text_twice_are_refused(tmp_path: Path) -> None:
    """Arrow merges equal texts, but not their codes: other texts would be read in their place."""
    path = tmp_path / "twice.parquet"
    texts = {"did": ["s:aaaaaaaa", "s:bbbbbbbb", None, "s:cccccccc"]}
    pq.write_table(pa.table(texts), path, compression="none", write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"s:bbbbbbbb", b"s:aaaaaaaa"))
    assert read_parquet(str(path), ["did"], arrow_schema(FILES))["did"].to_pylist()[3] == "s:cccccccc"
    with pytest.raises(OSError, match="lists a text twice"):
        read_parquet(str(path), ["did"], arrow_schema(FILES, ["did"]))
