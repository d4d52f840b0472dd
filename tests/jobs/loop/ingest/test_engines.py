"""Both engines leave the same in the tables, whatever they read; one rule says which of them pulls."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import watched_java
from damage import damaged
from pulls import LOCAL, pulled

from features.common.errors import ConfigError, InputError, ServiceError
from features.schema import ACCESSES, FILES, JOB_RECORDS, REJECTS
from jobs.ground.settings.our_sources import OURS
from jobs.ground.settings.tree import Settings, SparkSettings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import pull
from jobs.loop.ingest.pull_input import Engine
from jobs.loop.ingest.sources import lines, workspace

GOLDEN = Path(__file__).parents[3] / "golden/pull"
DECODED = {"xcache_gstream", "xrootd_fstream"}
FOLDERS = {"xcache_cinfo", "rucio_dumps"}
BY_SPARK = {"rucio_traces", "osdf_accesses", "panda_jobs", "rucio_files"}
HOSTILE = [
    b"[" * 100_000 + b"]" * 100_000,
    b'{"eventType": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    b'{"filesize": 1e999, "bytes": -1e999, "data": {"start_time": 99999999999999999999999}}',
    b'{"eventType": "get\xff\xfe", "scope": "\xed\xa0\x80"}',
    b'{"eventType": "get\\u0000", "scope": "\\ud800"}',
    b"\0\0\0",
    b'{"eventType": "get"}\0',
    b'"' + b"x" * 3_000_000 + b'"',
    b'{"eventType": "' + "é".encode() * 200 + b'"}',
    b"a,b\rc,d",
    b"   ",
    b'"unended, quote',
    b"[0000-01-01T00:00:00Z] [Objectname:/x] [Read:1]",
    b"[9999-12-31T23:59:59Z] [Objectname:/x] [Read:1]",
    b'{"a": 1,}',
    b'{"a": NaN, "a": Infinity}',
    "\u2028\ufeff{}".encode(),
]


def left(tables: Tables, engine: Engine, source: str, path: Path) -> dict[str, Any]:
    """The answer of a pull, and all rows of the tables."""
    summary = pulled(tables, source, path, engine=engine, salt="s", caches=["pic.es"])
    contents = dataclasses.asdict(dataclasses.replace(summary, engine=""))
    for table in (ACCESSES, FILES, JOB_RECORDS, REJECTS):
        rows = tables.read_arrow(table).to_pylist() if tables.exists(table) else []
        contents[table.name] = sorted(map(repr, rows))
    return contents


@pytest.mark.parametrize("source", sorted(set(OURS) - FOLDERS - DECODED))
def test_hostile_lines_are_written_or_counted_and_by_both_engines_alike(
    request: pytest.FixtureRequest, tmp_path: Path, source: str
) -> None:
    """Workers of Spark run the same SQL: what differs is who cuts lines and headers."""
    engines = [LOCAL, *([request.getfixturevalue("spark_engine")] if source in BY_SPARK else [])]
    folder = tmp_path / "raw é=1 +&"
    folder.mkdir()
    for case in sorted(path for path in (GOLDEN / source).rglob("input.*") if path.is_file())[:1]:
        lines = damaged(case.read_bytes(), 60, seed=3)
        content = lines + b"\n".join(HOSTILE) + b"\r\n"
        (folder / f"a b{case.suffix}").write_bytes(content)
    contents = [left(Tables(str(tmp_path / engine.name)), engine, source, folder) for engine in engines]
    assert all(of_engine == contents[0] for of_engine in contents)
    written = sum(len(contents[0][table.name]) for table in (ACCESSES, FILES, JOB_RECORDS))
    assert (contents[0]["n_new"], contents[0]["n_duplicates"] >= 0) == (written, True)
    assert contents[0]["n_rejected"]
    assert contents[0]["n_rows"] >= 40


def test_the_marks_of_one_engine_are_those_of_the_other(
    spark_engine: Engine, tables: Tables, tmp_path: Path
) -> None:
    (tmp_path / "raw é").mkdir()
    (tmp_path / "raw é" / "a 1").write_text("no trace\n")

    def unchanged(*engines: Engine) -> list[int]:
        path = tmp_path / "raw é"
        summaries = (pulled(tables, "rucio_traces", path, engine=of, new_only=True) for of in engines)
        return [summary.n_unchanged for summary in summaries]

    assert unchanged(spark_engine, LOCAL) == [0, 1]
    (tmp_path / "raw é" / "b").write_text("no trace\n")
    assert unchanged(LOCAL, spark_engine) == [1, 2]


class Started(Exception):
    """Spark would have started."""


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(_: SparkSettings) -> None:
        raise Started

    monkeypatch.setattr("jobs.ground.spark.session.spark_session", started)


@pytest.mark.usefixtures("no_spark")
def test_what_is_local_and_of_ordinary_size_is_pulled_without_spark(tables: Tables, tmp_path: Path) -> None:
    spark = Settings.load(env={}).spark
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "b.gz").write_bytes(b"x" * 1000)

    def engine_for(source: str, path: str, up_to_bytes: int, *, root: str = "") -> str:
        into = Tables(root) if root else tables
        try:
            return pull.engine_for(into, source=source, path=path, up_to_bytes=up_to_bytes, spark=spark).name
        except Started:
            return "spark"

    a, b = str(tmp_path / "a"), str(tmp_path / "b.gz")
    assert engine_for("rucio_traces", a, 1000) == engine_for("rucio_traces", f"file://{a}", 1000) == "local"
    assert engine_for("rucio_traces", a, 999) == "spark"
    assert (engine_for("rucio_traces", b, 10_000), engine_for("rucio_traces", b, 9999)) == ("local", "spark")
    assert engine_for("rucio_traces", f"{tmp_path}/{{a,b.gz}}", 11_000) == "local"
    assert engine_for("rucio_traces", "hdfs://namenode:9000/traces", 10**9) == "spark"
    assert engine_for("rucio_dumps", a, 10**9) == "spark"
    (tmp_path / "c").write_text(json.dumps({"scope": "s", "name": "f", "bytes": 1}))
    pulled(tables, "rucio_files", tmp_path / "c")
    assert engine_for("rucio_files", a, 10_000) == "spark"  # with the table that it is merged into
    assert engine_for("rucio_files", a, 10**6) == "local"


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"source": "nonsense"}, ConfigError, "rucio_traces"),
        ({"path": "nothing-here"}, InputError, "nothing-here: there is no such file"),
        ({"path": "nothing-here", "source": "rucio_dumps"}, InputError, "nothing-here"),
        ({"path": "hdfs://h:1/x", "source": "xcache_cinfo"}, InputError, "copy them from hdfs://"),
        ({"path": "nothing-here", "source": "rucio_server"}, InputError, "nothing-here"),
        ({"root": "a"}, ServiceError, r"tables: .* is no folder"),
    ],
)
def test_what_can_be_checked_is_checked_before_an_engine_starts(
    tmp_path: Path, change: dict[str, str], error: type[Exception], words: str
) -> None:
    (tmp_path / "a").write_text("")
    arguments = {"source": "rucio_traces", "path": str(tmp_path / "a")} | change
    settings = Settings.load(env={}, tables=str(tmp_path / arguments.pop("root", "tables")))
    with pytest.raises(error, match=words):
        pull.run(settings, source=arguments["source"], path=arguments["path"], day_s=0)
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize(
    ("words", "brought"),
    [
        (["pull", "--source", "rucio_traces", "--input", "rucio_traces/input.jsonl"], "n_new"),
        (["pull", "--source", "xcache_gstream", "--input", "xcache_gstream/input.txt"], "n_new"),
        (["scan", "--cache", "xc1", "--namespace", "xcache_cinfo/input.cache1"], "new_accesses"),
    ],
)
def test_pulls_and_scans_of_a_cache_s_host_start_no_java(
    tmp_path: Path, words: list[str], brought: str
) -> None:
    day = ["--day", "2026-03-01"] if words[0] == "pull" else []
    more = [str(GOLDEN / words[-1]), *day, "--json", "--tables", str(tmp_path / "tables")]
    done = watched_java.cachecast(tmp_path, *words[:-1], *more)
    assert (done.returncode, done.spark) == (0, set()), done.stderr
    answer = json.loads(done.stdout)
    assert answer[brought] and answer.get("engine", "local") == "local"


def test_a_start_of_java_is_seen(tmp_path: Path) -> None:
    words = ["pull", "--source", "rucio_dumps", "--input", str(tmp_path), "--day", "2026-03-01"]
    done = watched_java.cachecast(tmp_path / "watched", *words, "--tables", str(tmp_path / "tables"))
    assert done.returncode and {"java", "pyspark"} <= done.spark, done.stderr


def test_a_workspace_reads_and_writes_no_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with workspace.opened(ACCESSES) as space:
        for text, why in (
            (f"SELECT * FROM read_csv('{tmp_path}/x.csv')", "file system operations are disabled"),
            (f"COPY parsed TO '{tmp_path}/y.csv'", "file system operations are disabled"),
            ("INSTALL httpfs", "file system operations are disabled"),
            ("SET enable_external_access = true", "Cannot enable external access"),
        ):
            with pytest.raises(duckdb.Error, match=why):
                space.database.execute(text)


@pytest.mark.parametrize("n_bytes", [4 * 2**20 - 1, 4 * 2**20, lines.MOST_LINE_BYTES + 5 * 2**20])
def test_a_line_of_any_length_is_one_row(tables: Tables, tmp_path: Path, n_bytes: int) -> None:
    long = b"x" * n_bytes
    (tmp_path / "a").write_bytes(b"\r\n".join([b"one", long, b"", long, b"four"]))
    summary = pulled(tables, "rucio_traces", tmp_path / "a")
    assert (summary.n_rows, summary.n_rejected) == (4, {"malformed JSON": 4})
