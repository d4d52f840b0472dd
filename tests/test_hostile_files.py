"""Files from others that are valid and still hostile: settings, fleets, workloads, queues, traces, cinfo."""

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cinfo_writer import dump

from features.common.errors import CachecastError, ConfigError, InputError, SchemaError
from jobs.ground.settings.tree import Settings
from jobs.loop.ingest.queues import answers
from jobs.loop.ingest.queues.answers import read_answer
from jobs.studies.simulate import workload
from jobs.studies.simulate.fleet import load_fleet
from prefetch.xcache import cinfo, cinfo_rows
from prefetch.xcache.cinfo import AccessRecord, CInfo
from replay.access_context import context_of
from replay.read import read_trace

DEMO = Path(__file__).parents[1] / "conf" / "workloads" / "demo.toml"


def written(folder: Path, text: str, name: str = "site.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


READERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: Settings.load(path, env={}),
    "fleet": load_fleet,
    "workload": lambda path: workload.load(str(path), seed=1),
    **{kind: partial(read_trace, kind=kind) for kind in ("auto", "table", "oracleGeneral", "lcs")},
    "cinfo": cinfo.read,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_is_refused_at_once(tmp_path: Path, reader: str) -> None:
    """It would wait for a writer for ever."""
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(CachecastError, match=r"not? (a )?plain file"):
        READERS[reader](tmp_path / "pipe.toml")


@pytest.mark.parametrize("reader", ["settings", "fleet", "workload"])
def test_toml_without_end_is_refused_at_once(tmp_path: Path, reader: str) -> None:
    (tmp_path / "site.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="not a plain file"):
        READERS[reader](tmp_path / "site.toml")


# Workloads


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, "nan") for key in ("popularity_sigma", "close_hours", "mean_size_bytes")),
        *((key, "inf") for key in ("size_scale", "night_factor", "files_median", "return_days_median")),
        *((key, "1e300") for key in ("size_scale", "weekend_factor", "files_median", "size_sigma")),
        *(("min_size_bytes", value) for value in ("-1", "99999999999999999999")),
        *(("sites", value) for value in ("3", "'abc'", "[1]", "[[]]", '["a\\nb"]', "['']")),
        *(("start", value) for value in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")),
        *((("period_days"), "99999999999999999999"), ("n_users", "99999999999999999999")),
        ("unread_share", "0.99999999999"),
    ],
)
def test_a_workload_beyond_reason_names_its_key(tmp_path: Path, key: str, value: str) -> None:
    lines = DEMO.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} = "))
    lines[at] = f"{key} = {value}"
    with pytest.raises(ConfigError, match=key.removeprefix("period_")):
        workload.load(str(written(tmp_path, "\n".join(lines))), seed=1)


# Queues


def test_a_line_of_json_ends_where_lines_end_and_not_at_unicodes_separators(tmp_path: Path) -> None:
    jobs = [{"job_id": str(i), "file": f"/f\u2028{i}\u0085"} for i in range(2)]
    path = tmp_path / "queue.json"
    path.write_text("\r\n".join(json.dumps(job, ensure_ascii=False) for job in jobs))
    assert read_answer(str(path), token="", timeout_s=1) == jobs


def test_a_queue_of_more_entries_than_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_ENTRIES", 10)
    for name, text in (
        ("q.json", "[" + ",".join(["{}"] * 11) + "]"),
        ("q.csv", "job_id\n" + "1\n" * 11),
        ("l.json", '{"job_id": "1"}\n' * 11),
    ):
        path = written(tmp_path, text, name)
        with pytest.raises(InputError, match="more than 10 entries"):
            read_answer(str(path), token="", timeout_s=1)


def test_a_queue_of_more_columns_than_any_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ",".join(["job_id", *(f"c{i}" for i in range(1000))]) + "\n1\n", "q.csv")
    with pytest.raises(InputError, match="columns"):
        read_answer(str(path), token="", timeout_s=1)


def test_a_queue_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 1 << 20)
    with (tmp_path / "queue.json").open("wb") as sparse:
        sparse.truncate(1 << 27)
    with memory_of(2), pytest.raises(InputError, match="larger than 1 MiB"):
        read_answer(str(tmp_path / "queue.json"), token="", timeout_s=1)
    with pytest.raises(InputError, match="a device"):
        read_answer("/dev/zero", token="", timeout_s=1)


@contextmanager
def memory_of(gigabytes: int) -> Iterator[None]:
    """At most so much more than this process has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + gigabytes * 2**30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


# Traces


def not_utf8() -> pa.Array:
    ends = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"\xff\xfe")])


@pytest.mark.parametrize("role", ["item", "time"])
def test_a_parquet_trace_with_strings_that_are_no_text_names_its_file(tmp_path: Path, role: str) -> None:
    table = {"time": pa.array([1, 2]), "item": pa.array(["a", "b"]), "size": pa.array([5, 6])}
    pq.write_table(pa.table(table | {role: not_utf8()}), tmp_path / "trace.parquet")
    with pytest.raises(InputError, match=r"trace\.parquet.*UTF"):
        read_trace(tmp_path / "trace.parquet")


def test_a_parquet_trace_with_damaged_names_of_columns_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    columns = {"time": [1], "item": ["a"], "size": [5], "another_one": [1]}
    pq.write_table(pa.table(columns), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"another_one", b"another_\xff\xfe\xfd"))
    with pytest.raises(InputError, match=r"trace\.parquet"):
        read_trace(path)


def test_a_parquet_trace_whose_codes_name_no_value_is_refused(tmp_path: Path) -> None:
    """A kernel would write beyond the end of an array."""
    path = tmp_path / "trace.parquet"
    table = {"time": pa.array([1, 2]), "item": pa.array(["a", "b"]), "size": pa.array([5, 6])}
    pq.write_table(pa.table(table), path, compression="none", write_statistics=False)
    content = path.read_bytes()
    outside = 0
    for at in range(len(content)):
        for value in (0x07, 0x1B, 0xE4, 0xFF):
            path.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
            try:
                trace = read_trace(path).trace
            except CachecastError:
                continue
            outside += not (trace.item.min() >= 0 and trace.item.max() < trace.size_bytes.size)
    assert outside == 0


def test_a_csv_trace_whose_closes_are_no_text_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"time,item,size,close\n1,a,5,\xff\n")
    with pytest.raises(InputError, match=r"trace\.csv: close has bytes that are not UTF-8"):
        read_trace(path, kind="table", columns={"close": "close"})


T0_S = 1_772_323_200


def house(folder: Path, **columns: pa.Array) -> Path:
    """An `accesses` table of four rows."""
    times = pa.array([(T0_S + i) * 10**6 for i in range(4)], pa.timestamp("us", tz="UTC"))
    table = {"accessed_at": times, "did": pa.array(list("abcd")), "size_bytes": pa.array([1, 2, 3, 4])}
    pq.write_table(pa.table(table | columns), folder / "trace.parquet")
    return folder / "trace.parquet"


@pytest.mark.parametrize("n_reads", [2**62, 2**40, 2**29, 2**24 + 1])
def test_reads_beyond_any_trace_are_refused_before_memory_is_taken(tmp_path: Path, n_reads: int) -> None:
    """Four times 2**62 is 0 in 64 bits: rows were written beyond the end of an array of that size."""
    path = house(tmp_path, n_reads=pa.array([n_reads] * 4))
    with memory_of(2), pytest.raises(InputError, match=rf"n_reads {n_reads} in .*trace\.parquet row 1"):
        read_trace(path)


def test_event_ids_that_have_no_order_are_refused(tmp_path: Path) -> None:
    same = pa.array([T0_S * 10**6] * 4, pa.timestamp("us", tz="UTC"))
    path = house(tmp_path, accessed_at=same, event_id=pa.array([[1]] * 4))
    with pytest.raises(SchemaError, match=r"trace\.parquet: event_id is list"):
        read_trace(path)


@pytest.mark.parametrize("kind", ["auto", "accesses", "table"])
@pytest.mark.parametrize("twice", ["accessed_at", "did", "size_bytes"])
def test_a_parquet_trace_with_a_column_twice_is_refused(tmp_path: Path, twice: str, kind: str) -> None:
    table = pq.read_table(house(tmp_path))
    pq.write_table(table.append_column(twice, table[twice]), tmp_path / "trace.parquet")
    with pytest.raises(SchemaError, match=twice):
        read_trace(tmp_path / "trace.parquet", kind=kind)


@pytest.mark.parametrize("other", ["1.5", "2"])
def test_a_csv_trace_with_a_column_twice_is_refused(tmp_path: Path, other: str) -> None:
    path = written(tmp_path, f"time,item,size,size\n1,a,5,{other}\n", "trace.csv")
    with pytest.raises(SchemaError, match=r"trace\.csv has several columns 'size'"):
        read_trace(path, columns={"size": "size"})


def test_a_pipe_is_no_catalogue(tmp_path: Path) -> None:
    house(tmp_path).rename(tmp_path / "accesses.parquet")
    os.mkfifo(tmp_path / "files.parquet")
    with pytest.raises(InputError, match="not a plain file"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([[1]] * 4), "is list"),
        (pa.array([{"a": 1}] * 4), "is struct"),
        (pa.array([b"\xff"] * 4), "has bytes that are not UTF-8"),
        (pa.array([1] * 4).cast(pa.decimal128(38, 2)), None),
        (pa.nulls(4), None),
        (pa.array([1.5, float("nan"), None, 1.5]), None),
    ],
)
def test_columns_beside_a_trace_are_strings_or_numbers(
    tmp_path: Path, column: pa.Array, why: str | None
) -> None:
    path = house(tmp_path, x=column)
    if why is not None:
        with pytest.raises(InputError, match=rf"trace\.parquet: x {why}"):
            read_trace(path, keep=("x",))
        return
    loaded = read_trace(path, keep=("x",))
    for role in ("dataset", "user", "task"):
        named = read_trace(path, columns={role: "x"}, keep=(role,))
        assert context_of(named).reader.size == loaded.trace.n_accesses == 4


def test_an_error_that_quotes_a_row_gives_the_terminal_no_orders(tmp_path: Path) -> None:
    path = written(tmp_path, "time,item,size\n1,a,5\nx\x1b[2J\x1b]0;title\x07\x9b\u202e\n", "trace.csv")
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).isprintable()
    assert "\\x1b[2J" in str(caught.value)


# cinfo

RECORD = AccessRecord(1_772_323_200, 1_772_323_300, 1, 100, 0, 0, 300_000, 0, 0)


def with_records(n_records: int) -> bytes:
    return dump(CInfo(131_072, 300_000, 1_772_323_200, 0, 1, 0, b"\x07", (RECORD,) * n_records))


def test_a_cinfo_of_more_records_than_any_cache_keeps_is_refused() -> None:
    assert len(cinfo.parse(with_records(1000)).accesses) == 1000
    with pytest.raises(InputError, match="access records"):
        cinfo.parse(with_records(cinfo.MAX_RECORDS + 1))


def test_a_batch_is_bounded_by_what_its_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cinfo_rows, "BATCH_RECORDS", 2500)
    for i in range(10):
        (tmp_path / f"f{i}.cinfo").write_bytes(with_records(1000))
    lengths = [batch.num_rows for batch in cinfo_rows.batches(tmp_path)]
    assert sum(lengths) == 10
    assert max(lengths) <= 3
