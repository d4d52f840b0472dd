"""`cachecast serve` as a process: restarted, killed, without its database, with TLS, wrongly set."""

import shutil
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import httpx
import pydantic
import pytest
from commands import COMMAND
from placement_server import PLACED_AT, ROOT, certificate, loaded, refresh, serving, threaded
from typer.testing import CliRunner
from waiting import eventually

from features.common.errors import CachecastError, ConfigError, NotDueError
from jobs.cli.main import app
from jobs.ground.settings.tree import CacheSettings
from jobs.operator.placement.serve import members
from prefetch.placement.database import PlacementTables
from prefetch.placement.fleet import CacheServer, Pending


def test_a_restart_keeps_state_and_a_refresh_is_noticed(tmp_path: Path) -> None:
    database = tmp_path / "placement.db"
    caches = {"b": ("EDGE", 100), "a": ("EDGE", 50), "c": ("EDGE", 300)}
    with serving(database, caches=caches) as first:
        for id in caches:
            first.beat(id)
        with first.client() as operator:
            operator.put("/serve", json={"client": "T2", "cache_site": "EDGE"}).raise_for_status()
            operator.put("/ds/reassign/cms:/X/EDGE").raise_for_status()
            ranges = operator.get("/serverRanges").json()
    with serving(database, caches=caches) as second, second.client() as operator:
        assert operator.get("/serverRanges").json() == ranges
        assert operator.get("/serve").json() == {"T2": "EDGE"}
        assert operator.get("/health").json()["datasets"] == 0
        refresh(database)
        assert eventually(lambda: bool(operator.get("/health").json()["datasets"] == 5))
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]


def test_a_killed_service_lost_no_operators_change(tmp_path: Path) -> None:
    with serving(tmp_path / "p.db") as first:
        first.beat("a")
        with first.client() as operator:
            operator.put("/ds/reassign/cms:/X/EDGE").raise_for_status()
            assert eventually(lambda: (operator.get("/health").json()["synced_at_s"] or 0) > 0)
            assert first.process is not None
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
    with serving(tmp_path / "p.db") as second, second.client() as operator:
        operator.put("/ds/reassign/cms:/Y/other").raise_for_status()
        assert operator.delete("/ds/reassign/cms:/X").status_code == 200


def test_it_answers_from_memory_while_the_database_is_away(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    refresh(folder / "p.db")
    with serving(folder / "p.db") as started, started.client() as operator:
        started.beat("xc1")
        ranges = operator.get("/serverRanges").json()
        folder.rename(tmp_path / "away")
        assert eventually(lambda: bool(operator.get("/health").json()["status"] == "degraded"))
        assert operator.get("/serverRanges").json() == ranges
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]
        assert operator.post("/score", json={"inputs": ["cms:/f"]}).status_code == 200
        figures = operator.get("/metrics").text
        assert "cachecast_placement_database_up 0.0" in figures
        assert 'cachecast_placement_database_faults_total{error="ServiceError"}' in figures
        started.beat("xc2")
        assert len(operator.get("/serverRanges").json()["EDGE"]["servers"]) == 2
        refused = operator.put("/serve", json={"client": "T2", "cache_site": "EDGE"})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        assert operator.get("/serve").json() == {}
        (tmp_path / "away").rename(folder)
        assert eventually(lambda: bool(operator.get("/health").json()["status"] == "ok"))
        assert len(operator.get("/serverRanges").json()["EDGE"]["servers"]) == 2
    with serving(folder / "p.db") as again:
        assert len(again.get("/serverRanges").json()["EDGE"]["servers"]) == 2


def test_what_somebody_else_wrote_to_the_database_is_stated_by_its_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "p.db"
    refresh(database)
    with threaded(database, time.time) as started, started.client() as operator:
        operator.put("/ds/reassign/cms:/X/other").raise_for_status()
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("update placement_reassigned set sites = 'no json'")
        assert eventually(lambda: bool(operator.get("/health").json()["status"] == "degraded"))
        assert operator.get("/health").json()["database"] == "storing failed (JSONDecodeError)"
        assert operator.get("/ds/5/cms:/X").json() == ["other"]
        figures = operator.get("/metrics").text
        assert 'cachecast_placement_database_faults_total{error="JSONDecodeError"}' in figures
    assert [record.exc_info is not None for record in caplog.records if "storing" in record.message] == [True]


def test_a_damaged_snapshot_keeps_nobodys_heartbeats_away(tmp_path: Path) -> None:
    database = tmp_path / "p.db"
    refresh(database)
    threads = [threaded(database, time.time) for _ in range(2)]
    with threads[0] as first, threads[1] as second, second.client() as operator:
        with closing(PlacementTables(str(database))) as opened:
            opened.refresh(b"damaged", "2026-03-02T00:00:00Z")
        assert eventually(lambda: "cachecast place" in operator.get("/health").json()["database"])
        first.beat("xc1")
        assert eventually(lambda: list(operator.get("/serverRanges").json()) == ["EDGE"])
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]
        health = operator.get("/health").json()
        assert (health["status"], health["as_of"]) == ("degraded", PLACED_AT)
        assert 'database_faults_total{error="InputError"} 1.0' in operator.get("/metrics").text
        refresh(database)
        assert eventually(lambda: bool(operator.get("/health").json()["status"] == "ok"))
        refresh(database, {"EDGE": {"e9": 1}})
        assert eventually(lambda: operator.get("/health").json()["silent"] == ["EDGE/e9"])
        with closing(sqlite3.connect(database)) as restored, restored:  # as from a backup
            restored.execute("DELETE FROM placement_snapshots WHERE id = 4")
        assert eventually(lambda: operator.get("/health").json()["silent"] == [])


def test_stored_heartbeats_count_as_configuration_says_and_those_of_the_future_do_not(tmp_path: Path) -> None:
    database, now_s = tmp_path / "p.db", time.time()
    stored = [
        CacheServer("EDGE", "xc1", "evil.example.org:1094", 1e18, now_s),
        CacheServer("EDGE", "evil", "evil.example.org:1094", 1e18, now_s),
        CacheServer("PIC", "xc2", "evil.example.org:1094", 1e18, now_s),
        CacheServer("EDGE", "xc3", "xc3:1094", 100, now_s + 400 * 86400),
    ]
    with closing(PlacementTables(str(database))) as opened:
        opened.sync(Pending({server.key: server for server in stored}, {}, 0))
    with threaded(database, time.time) as started:
        ranges = started.get("/serverRanges").json()
        assert ranges == {"EDGE": {"servers": [["xc1:1094", 100]], "ranges": [[0, 1.0]]}}
        started.beat("xc3")
        servers = started.get("/serverRanges").json()["EDGE"]["servers"]
        assert servers == [["xc1:1094", 100], ["xc3:1094", 100]]


def test_it_starts_without_its_database_and_finds_it_later(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    refresh(tmp_path / "p.db")
    with serving(folder / "p.db") as started, started.client() as operator:
        assert operator.get("/health").json()["status"] == "degraded"
        assert operator.get("/serverRanges").json() == {}
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["other"]
        started.beat("xc1")
        assert operator.get("/ds/5/cms:/P/E/AOD").json() == ["EDGE"]
        folder.mkdir()
        shutil.copy(tmp_path / "p.db", folder / "p.db")
        assert eventually(lambda: bool(operator.get("/health").json()["datasets"] == 5))
        assert operator.get("/serverRanges").json()["EDGE"]["servers"] == [["xc1:1094", 100]]


def test_dead_caches_leave_and_return_by_the_clock(tmp_path: Path) -> None:
    clock = [1_772_323_200.0]
    with threaded(tmp_path / "p.db", lambda: clock[0]) as started, started.client() as client:
        started.beat("a")
        started.beat("b")
        both = client.get("/serverRanges").json()
        clock[0] += 100
        started.beat("a")
        clock[0] += 79
        assert client.get("/serverRanges").json() == both
        clock[0] += 1
        assert eventually(lambda: len(client.get("/serverRanges").json()["EDGE"]["servers"]) == 1)
        assert not client.get("/liveness").json()["EDGE"]["b"]["live"]
        started.beat("b")
        assert client.get("/serverRanges").json() == both
        clock[0] += 180
        assert eventually(lambda: client.get("/serverRanges").json() == {})
        assert client.get("/ds/5/cms:/any").json() == ["other"]


def test_tokens_come_from_private_files_and_tls_is_spoken(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-from-a-private-file\n")
    token.chmod(0o600)
    options = {"token": "", "token_file": str(token)} | certificate(tmp_path)
    with serving(tmp_path / "p.db", **options) as started:
        assert started.url.startswith("https://")
        headers = {"authorization": "Bearer a-token-from-a-private-file"}
        with httpx.Client(base_url=started.url, verify=False, headers=headers, timeout=60) as client:
            assert client.post("/liveness", json={"id": "a"}).status_code == 200
            assert client.get("/serverRanges").json()["EDGE"]["servers"] == [["a:1094", 100]]
            page = loaded(client.get, "/operator")
            assert page.status_code == 200 and "a-token" not in page.text


def test_without_a_token_nothing_can_be_changed(tmp_path: Path) -> None:
    with (
        threaded(tmp_path / "p.db", time.time, token=pydantic.SecretStr(""), cache_tokens="") as started,
        started.client("whatever") as client,
    ):
        assert client.post("/liveness", json={"id": "a"}).status_code == 401
        assert client.get("/serverRanges").json() == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"TOKEN": "short"}, "shorter than 16"),
        ({"TOKEN_FILE": "/dev/null/token"}, "cannot read"),
        ({"CACHE_TOKENS": "/dev/null/tokens"}, "cannot read folder"),
        ({"HOST": "0.0.0.0", "TOKEN": "operators-token-123"}, "unencrypted: set tls_cert"),
        ({"TLS_CERT": "/dev/null", "TLS_KEY": "/dev/null"}, "give PEM files"),
        ({"DATABASE": "mysql://x"}, "use sqlite or postgresql"),
        ({"TLS_CERT": "x"}, "go together"),
        ({"FORGET": "1m"}, "longer than liveness"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_one_line(tmp_path: Path, options: dict[str, str], words: str) -> None:
    answer = CliRunner().invoke(app, ["serve", "--port", "0"], env=_environment(tmp_path, options))
    assert isinstance(answer.exception, CachecastError)
    assert words in str(answer.exception) and len(str(answer.exception).splitlines()) == 1


def test_an_empty_address_is_a_wrong_one_and_not_left_out() -> None:
    cache = CacheSettings(name="a", kind="xcache", url="root://a", capacity=1)
    assert members([cache])["a"].address == "a:1094"
    with pytest.raises(ConfigError, match=r"caches\.a\.address: not an address"):
        members([cache.model_copy(update={"address": ""})])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--port", "99999"], "serve.port: 99999 is no port"),
        (["--port", "-1"], "serve.port: -1 is no port"),
        (["--host", "x..y"], "serve.host: 'x..y' is no address of this machine"),
        (["--host", "203.0.113.7"], "cannot listen"),
        (["--host", "\udcff"], "serve.host: '\\udcff' is no address of this machine"),
    ],
    ids=ascii,
)
def test_where_nobody_can_listen_is_one_line(tmp_path: Path, words: list[str], why: str) -> None:
    answer = CliRunner().invoke(app, ["serve", "--port", "0", *words], env=_environment(tmp_path, {}))
    assert isinstance(answer.exception, CachecastError) and why in str(answer.exception)


def test_more_connections_than_this_machine_allows_are_one_line(tmp_path: Path) -> None:
    options = _environment(tmp_path, {"CONNECTIONS": "100000"})
    answer = subprocess.run(
        [*COMMAND, "serve", "--port", "0"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | options,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert answer.returncode == 1
    assert "raise LimitNOFILE or lower it" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def _environment(folder: Path, options: dict[str, str]) -> dict[str, str]:
    values = {"DATABASE": str(folder / "p.db")} | options
    return {f"CACHECAST_SERVE__{key}": value for key, value in values.items()}


def test_an_older_refresh_that_was_overtaken_while_it_computed_replaces_nothing(tmp_path: Path) -> None:
    early, late = "2026-03-01T22:00:00Z", "2026-03-01T23:00:00Z"
    with closing(PlacementTables(str(tmp_path / "placement.db"))) as opened:
        opened.refresh(b"future", "2032-01-01T00:00:00Z", now="2032-01-01T00:00:00Z")  # by a wrong clock
        opened.refresh(b"late", late, now=late)
        with pytest.raises(NotDueError, match=late):
            opened.refresh(b"early", early, now=late)
        assert opened.sync(Pending({}, {}, 0)).refresh.snapshot == b"late"
        opened.refresh(b"early", early)  # by hand
        assert opened.sync(Pending({}, {}, 0)).refresh.snapshot == b"early"
