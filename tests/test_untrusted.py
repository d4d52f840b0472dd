"""Bytes from outside: a parser gives an answer or a clear error, whatever it is given (some 15 s)."""

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from untrusted import Target, answers, parsers

from features.common import strict_json
from features.common.errors import ConfigError, InputError
from features.common.times import as_of_label, parse_as_of
from jobs.ground.settings.tree import Settings
from jobs.loop.ingest.queue_entries import check_entries
from jobs.loop.ingest.queues.answers import read_answer
from prefetch.databases import Database, without_password
from prefetch.journal.journal import Journal
from prefetch.journal.tables import metadata
from prefetch.xcache.cinfo_rows import batches
from prefetch.xcache.events import json_object
from prefetch.xcache.fstream_capture import Fault, FstreamReader

DATA = Path(__file__).parent / "data"
PARSERS = parsers(DATA)
TARGETS = PARSERS.targets()


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    PARSERS.close()


@st.composite
def changed(draw: st.DrawFn, target: Target) -> bytes:
    """A real input with some of it replaced, or any bytes."""
    content = draw(st.one_of(st.sampled_from(target.seeds), st.binary(max_size=200)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        n_cut = draw(st.sampled_from([0, 1, 4, 8, 10_000]))
        content = content[:at] + draw(PIECES) + content[at + n_cut :]
    return content


# What parsers stumble over: ends of integers, half a character, depth, length.
PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [b"\\ud800", b"[" * 3000, b"9" * 5000, b"-1", b"1e999", b"NaN", b"\0", b"\xff", b"'", b"\n"]
    ),
    st.sampled_from([struct.pack("<q", n) for n in (-(2**63), 2**63 - 1, -1)]),
)


WORST = [b"\\ud800", b"\xff", b"[" * 20_000, b"9" * 5000, b"NaN", b"\0", struct.pack("<q", -(2**63))]


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_worst_in_the_middle_of_real_bytes_is_answered(name: str) -> None:
    for seed in TARGETS[name].seeds[:3]:
        for piece in WORST:
            for at in (1, len(seed) // 2, len(seed)):
                answers(TARGETS[name].parse, seed[:at] + piece + seed[at:])


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_changed_bytes_are_answered(name: str) -> None:
    @settings(deadline=None, max_examples=25, database=None, suppress_health_check=list(HealthCheck))
    @given(changed(TARGETS[name]))
    def ask(content: bytes) -> None:
        answers(TARGETS[name].parse, content)

    ask()


FOUND: dict[str, list[object]] = {
    "cinfo": [2, 3],
    "cinfo_sealed": [2, 3],
    "gstream_capture": [0, 2],
    "gstream_datagram": [0, 1, 1],
    "fstream_datagram": [
        *((276, 284), (6, 4), (4, 6), (285, 282), (271, 282)),
        *((268, 287), (262, 261), (276, 281), (286, 262), (285, 280)),
    ],
    "fstream_lines": [
        *((276, 18), (6, 0), (4, 4), (285, 9), (271, 12)),
        *((268, 27), (262, 21), (276, 22), (286, 3), (285, 13), (276, 18)),
    ],
    "queue_json": [2, 1, 0],
    "queue_csv": [2],
    "settings_toml": [["a"]],
    "fleet_toml": [["a-1", "a-2"]],
    "workload_toml": [["RAW", "AOD", "MINIAOD", "NANOAOD"]],
    "environment": [(86400, ()), (2 * 86400, ("a",))],
    "trace_csv": [2],
    "trace_oracle": [1],
    "trace_any": [1],
    "names": [("/P/E-V-v1/AODSIM", ()), (None, (5, 5, 3)), (None, (1, 5, 0)), (None, ())],
    "database_url": ["postgresql://u:***@h:5432/db", "a.db"],
    "http": [200] * 8,
}
"""What each parser finds in the bytes it is fuzzed from: records, opens and closes, rows, names, statuses."""


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_real_bytes_are_taken(name: str) -> None:
    target = TARGETS[name]
    assert [target.parse(content) for content in target.seeds] == FOUND[name]


HALVES = [b"\xed\xa0\x80", b"\\ud800", b"\\uDFFF", b"\xff"]


@pytest.mark.parametrize("half", HALVES)
def test_text_that_no_utf8_holds_is_no_json(tmp_path: Path, half: bytes) -> None:
    line = b'{"remote": "HERE", "data": "x", "job_id": "1"}'.replace(b"HERE", half)
    for text in (line, b'{"HERE": 1}'.replace(b"HERE", half), b'[[["HERE"]]]'.replace(b"HERE", half)):
        with pytest.raises(ValueError):
            strict_json.loads(text)
    assert json_object(line) is None
    path = tmp_path / "lines.jsonl"
    path.write_bytes(line + b"\n")
    (fault,) = FstreamReader().read(path)
    assert isinstance(fault, Fault) and fault.reason == "malformed line"
    path = tmp_path / "queue.json"
    path.write_bytes(line)
    with pytest.raises(InputError):
        read_answer(str(path), token="", timeout_s=1)


def test_whole_characters_are_json_however_they_are_written() -> None:
    for text in (b'"\\ud83d\\ude00"', '"\U0001f600"'.encode(), '"\U0001f600"'):
        assert strict_json.loads(text) == "\U0001f600"
    assert strict_json.loads(b'"\\\\ud800"') == "\\ud800"


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, "{}".encode("utf-16")])
def test_what_is_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        strict_json.loads(text)


@pytest.mark.parametrize("url", ["http://[bad", "http://host:99999/", "https://h:x/"])
def test_a_queues_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="URL is none"):
        read_answer(url, token="", timeout_s=1)


@pytest.mark.parametrize(
    "field", [{"known_at": "0001-01-01T00:00:00+23:00"}, {"n_jobs": 10**30}, {"n_jobs": "9" * 5000}]
)
def test_an_entry_beyond_what_tables_hold_is_counted(field: dict[str, object]) -> None:
    answer = check_entries([{"job_id": "1", "file": "/f"} | field], as_of_s=1_772_323_200, stale_s=60)
    assert (answer.refused.total(), answer.rows) == (1, {})


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:00", "9999-12-31", "1969-12-31T23:59:59Z"])
def test_moments_that_no_date_can_be_reckoned_from_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a time"):
        parse_as_of(text)
    assert parse_as_of(as_of_label(4102444799)) == 4102444799


def test_a_folder_of_settings_whose_caches_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("caches = 3")
    with pytest.raises(ConfigError, match="must be a table"):
        Settings.load(tmp_path, env={})


SECRET = "s3cret-of-the-database"


@pytest.mark.parametrize(
    "url", [f"postgresql://u:{SECRET}@h:port/d", f"oracle://u:{SECRET}@h/d", f"x://{SECRET}"]
)
def test_a_databases_url_that_is_none_keeps_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Database(url, metadata, setting="push.journal", what="journal", patience_s=1)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [f"postgresql://u:{SECRET}@h/d", f"postgresql:///d?password={SECRET}", f"postgresql://u:{SECRET}@h:x/d"],
)
def test_a_databases_url_is_shown_without_secrets(url: str) -> None:
    assert SECRET not in without_password(url)
    assert without_password("/var/lib/x.db") == "/var/lib/x.db"


def test_a_folder_too_deep_for_a_path_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.cinfo").write_bytes((DATA / "v4-6.2.1.cinfo").read_bytes())
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    (batch,) = batches(tmp_path)
    assert sorted(batch["fault"].to_pylist(), key=str) == [None, "cannot be read"]
    shutil.rmtree(tmp_path)


def test_a_path_with_what_a_url_takes_for_options_is_a_path(tmp_path: Path) -> None:
    path = f"{tmp_path}/journal?sslmode=require"
    journal = Journal(path)
    journal.plans.cancel_superseded("c", now_s=0.0)
    journal.close()
    assert Path(path).is_file()
