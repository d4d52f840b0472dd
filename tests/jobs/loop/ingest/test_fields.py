"""Fields as pandas, Spark, Kibana and Elasticsearch write them: what they say, whatever their form."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pulls
import pytest
from matrix_records import json_lines
from raw_records import gstream

from features.schema import ACCESSES, FILES, REJECTS
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.sources import sql

TRACE = {
    "eventType": "download",
    "clientState": "DONE",
    "scope": "mc23_13p6TeV",
    "filename": "AOD.1._001.pool.root.1",
    "uuid": "u1",
    "localSite": "XX",
    "dataset": "mc23_13p6TeV.1.deriv",
    "filesize": 8,
    "transferStart": 1772323200,
    "timeStart": 1772323190,
    "transferEnd": 1772323201,
    "traceTimeentryUnix": 1772323202,
    "appid": 6001,
}
FILE = {
    "scope": "cms",
    "name": "/store/a/b.root",
    "bytes": 5,
    "created_at": "2026-03-01T00:00:00",
    "rses": ["T1"],
}


class Pulled:
    """What is in the tables after pulls of files with these contents."""

    def __init__(self, tables: Tables, folder: Path) -> None:
        self.tables, self.folder = tables, folder

    def __call__(self, source: str, *contents: str | bytes, suffix: str = "txt") -> list[dict[str, Any]]:
        for i, content in enumerate(contents):
            path = self.folder / f"{source}-{i}.{suffix}"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            pulls.pulled(self.tables, source, path, salt="s")
        table = FILES if source == "rucio_files" else ACCESSES
        rows = self.tables.read_arrow(table).to_pylist() if self.tables.exists(table) else []
        return sorted(rows, key=lambda row: str(row.get("event_id") or row["did"]))

    def reasons(self) -> dict[str, int]:
        return {row["reason"]: row["n_rows"] for row in self.tables.read_arrow(REJECTS).to_pylist()}


@pytest.fixture
def pulled(tables: Tables, tmp_path: Path) -> Pulled:
    return Pulled(tables, tmp_path)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Pulled:
    (tmp_path / "other").mkdir()
    return Pulled(Tables(str(tmp_path / "other tables")), tmp_path / "other")


def trace(**changes: object) -> str:
    return json.dumps(TRACE | changes)


WHOLE = {
    "8": 8, "8.0": 8, " 8.00 ": 8, "8.": 8, "1e3": 1000, "1.5E3": 1500, "4.2E9": 4_200_000_000, "-3.0": -3,
    "9.007199254740993E15": 9_007_199_254_740_993, "1e+16": 10**16, "0.0": 0,
}  # fmt: skip
NONE = ["1.5", "1.25e1", "8.00000000001e0", "nan", "inf", "1e30", "1e-1", "0x10", "1_000", "8.0.0", "", "e3"]


def value_of(expression: str, text: str) -> Any:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        return database.execute(f"SELECT {expression} FROM (SELECT ? AS x)", [text]).fetchone()[0]


def test_a_whole_number_is_one_however_it_is_written() -> None:
    assert {text: value_of(sql.count("x"), text) for text in WHOLE} == WHOLE
    assert [text for text in NONE if value_of(sql.count("x"), text) is not None] == []


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-03-01 04:00:00,123", 1772337600123000),
        ("2026-03-01T04:00:00.123456789+0000", 1772337600123456),
        ("2026-03-01 05:00:00.5+01", 1772337600500000),
        ("2026-03-01 04:00:00 UTC", 1772337600000000),
        ("1970-01-01", None),
        ("1969-12-31T23:00:00Z", None),
    ],
)
def test_moments_with_fractions(text: str, micros: int | None) -> None:
    assert value_of(sql.micros_of_moment("x"), text) == micros


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((word, None) for word in ("NA", "N/A", "None", "null", "NaN", "unknown", "Unknown", "-", "[]")),
        *((word, word) for word in ("NAF", "none/x", "unknowns", "n", "1.5", "-x", "x.0", "1.2.0", "[x].r")),
        ("12.0", "12"), ("12.00", "12"), ("6.001E9", "6001000000"), ('["a:b"]', "a:b"), ('["a", "b"]', None),
    ],
)  # fmt: skip
def test_what_a_text_names(text: str, named: str | None) -> None:
    assert value_of(sql.word("x"), text) == named


@pytest.mark.parametrize("suffix", ["txt", *pulls.PACKED])
def test_utf_16_is_refused_by_its_name(pulled: Pulled, suffix: str) -> None:
    pack = pulls.PACKED.get(suffix, bytes)
    assert pulled("rucio_traces", pack(trace().encode("utf-16")), suffix=suffix) == []
    assert pulled.reasons() == {"not a plain file: text in UTF-16 (write it as UTF-8)": 1}


ENVELOPES: list[Callable[[Any], Any]] = [
    lambda record: {"data": record, "metadata": {"kafka_timestamp": 1}},
    lambda record: {"metadata": {"kafka_timestamp": 1}, "data": record},
    lambda record: {"_index": "i", "_id": "x", "_source": record, "sort": [1]},
    lambda record: {"_index": "i", "_source": {"data": record, "metadata": {}}},
]


@pytest.mark.parametrize(("source", "record"), [("rucio_traces", TRACE), ("rucio_files", FILE)])
def test_an_envelope_changes_nothing(pulled: Pulled, elsewhere: Pulled, source: str, record: Any) -> None:
    plain = pulled(source, json.dumps(record))
    assert elsewhere(source, json_lines(envelope(record) for envelope in ENVELOPES)) == plain
    assert len(plain) == 1
    assert not elsewhere.tables.exists(REJECTS) or not elsewhere.reasons()


@pytest.mark.parametrize("none", [0, "0.0"])
def test_a_transfer_without_a_time_began_when_its_trace_did(pulled: Pulled, none: object) -> None:
    (row,) = pulled("rucio_traces", trace(transferStart=none, dataset=["mc23_13p6TeV:d"]))
    assert row["accessed_at"] == dt.datetime(2026, 2, 28, 23, 59, 50, tzinfo=dt.UTC)
    assert row["dataset"] == "mc23_13p6TeV:d"


def test_a_read_of_a_block_of_cms_is_one_of_its_dataset(pulled: Pulled) -> None:
    block = {"scope": "cms", "filename": "/store/group/x.root", "dataset": "/A/B-v1/AOD#7f"}
    whole = block | {"uuid": "u2", "dataset": "cms:/A/B-v1/AOD"}
    rows = pulled("rucio_traces", json_lines([TRACE | block, TRACE | whole]))
    assert [row["dataset"] for row in rows] == ["cms:/A/B-v1/AOD"] * 2


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"filesize": 1.5}, "unparsable size"),
    ({"filesize": 2**62}, "impossible size_bytes"),
    ({"transferStart": 0, "timeStart": 0}, "missing field: transferStart"),
    ({"transferStart": -5}, "unparsable time: transferStart"),
    ({"transferStart": 1772323200000}, "unparsable time: transferStart"),
    ({"transferStart": 1772323200000000}, "unparsable time: transferStart"),
    ({"clientState": "unknown"}, "transfer not done: other"),
]


def test_what_a_trace_cannot_say_is_refused(pulled: Pulled) -> None:
    lines = [trace(uuid=f"u{number}", **changes) for number, (changes, _) in enumerate(REFUSED)]
    assert pulled("rucio_traces", "\n".join(lines)) == []
    assert pulled.reasons() == Counter(reason for _, reason in REFUSED)


def test_reasons_are_ours_and_not_those_of_a_file(pulled: Pulled) -> None:
    assert pulled("rucio_files", json_lines({"refused": f"\x1b[2J{n}"} for n in range(9))) == []
    assert pulled.reasons() == {"missing field: scope": 9}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("rucio_files", json.dumps(FILE | {"bytes": 2**62})),
        ("xcache_gstream", gstream(["/store/x"], size=2**62)),
        ("xcache_gstream", gstream(["/store/x"], b_miss=2**63 - 1)),
        ("xcache_gstream", gstream(["/store/x"], size=0, blk_size=2**62, n_blks_done=2**62)),
    ],
)
def test_bytes_that_no_file_has_are_counted(pulled: Pulled, source: str, text: str) -> None:
    assert pulled(source, text) == []
    (reason,) = pulled.reasons()
    assert reason.startswith("impossible size")


def test_columns_that_a_series_has_beside_tell_its_rows_apart(pulled: Pulled, elsewhere: Pulled) -> None:
    rows = pulled("popularity_series", "date,site,dataset,n_accesses\n2026-03-01,T1,a,5\n2026-03-01,T2,a,5\n")
    assert [row["n_reads"] for row in rows] == [5, 5]
    # Their order is no matter, and what pandas numbers rows by names nothing.
    turned = (
        ',n_accesses,dataset,site,date\n0,5,a,"T2",2026-03-01\n1,5.0,a,T1,2026-03-01\n2,5,a,T1,2026-03-01\n'
    )
    assert elsewhere("popularity_series", turned) == rows
