"""The source `rucio_server` and its session, with a real Rucio server."""

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_proxy
import pytest
import watched_java
from access_rows import accesses
from rucio_server import RucioServer, access
from typer.testing import CliRunner

from features.common.errors import CachecastError, ConfigError, InputError, ServiceError
from features.schema import ACCESSES, FILES, REJECTS
from jobs.cli.main import app
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import catalogue
from jobs.loop.ingest.pull_input import PullSummary
from jobs.loop.ingest.sources import rucio_catalogue
from prefetch.rucio import session as rucio_session
from prefetch.rucio.session import Session

pytestmark = pytest.mark.service
DAY = dt.date(2030, 3, 5)
SCOPE, CMS = "mc23_13p6TeV", "cms"
AOD = f"{SCOPE}.601229.PhPy8EG.recon.AOD.e8514_s4162"
BLOCKS = "/TT/RunIII-P-v1/AODSIM"


def named(n: int, first: int = 0) -> list[str]:
    return [f"AOD.37._{i:06d}.pool.root.1" for i in range(first, first + n)]


def dids(scope: str, names: list[str]) -> list[dict[str, str]]:
    return [{"scope": scope, "name": name} for name in names]


def replicas(scope: str, names: list[str]) -> list[dict[str, Any]]:
    return [{**did, "bytes": 1000 + i, "adler32": f"{i:08x}"} for i, did in enumerate(dids(scope, names))]


@pytest.fixture(scope="module")
def held(rucio: RucioServer) -> dict[str, list[str]]:
    """What the server was told: the origins of each file, by did."""
    admin = rucio.admin()
    for rse in ("ORIGIN_A", "ORIGIN_B"):
        admin.add_rse(rse)
    admin.add_key("datatype", "ALL")
    admin.add_value("datatype", "AOD")
    for scope in (SCOPE, CMS):
        admin.add_scope("root", scope)
    admin.add_replicas("ORIGIN_A", replicas(SCOPE, named(7)))
    admin.add_replicas("ORIGIN_B", replicas(SCOPE, named(7))[2:4])
    admin.add_dataset(SCOPE, AOD)
    admin.attach_dids(SCOPE, AOD, dids(SCOPE, named(6)))
    admin.close(SCOPE, AOD)
    admin.set_local_account_limit("root", "ORIGIN_A", -1)
    admin.add_replication_rule(dids(SCOPE, [AOD]), copies=1, rse_expression="ORIGIN_A", grouping="DATASET")
    admin.add_dataset(SCOPE, f"{AOD}.empty")
    admin.add_container(CMS, BLOCKS)
    for k in range(2):
        files = [f"/store/mc/RunIII/TT/AODSIM/P-v1/{k}/{i}.root" for i in range(3)]
        admin.add_dataset(CMS, f"{BLOCKS}-{k}")
        admin.add_replicas("ORIGIN_B", replicas(CMS, files))
        admin.attach_dids(CMS, f"{BLOCKS}-{k}", dids(CMS, files))
    admin.attach_dids(CMS, BLOCKS, [{"scope": CMS, "name": f"{BLOCKS}-{k}"} for k in range(2)])
    known = {f"{SCOPE}:{name}": ["ORIGIN_A"] for name in named(7)}
    for name in named(2, first=2):
        known[f"{SCOPE}:{name}"].append("ORIGIN_B")
    cms = [f"{CMS}:/store/mc/RunIII/TT/AODSIM/P-v1/{k}/{i}.root" for k in range(2) for i in range(3)]
    return known | {did: ["ORIGIN_B"] for did in cms}


def session(url: str, folder: Path, **other: Any) -> Session:
    return Session(access(url, folder, **other), pause=lambda _s: None)


@pytest.fixture
def proxy(rucio: RucioServer) -> Iterator[faulty_proxy.FaultyProxy]:
    with faulty_proxy.before(rucio.url) as proxy:
        yield proxy


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "tables"))


@pytest.fixture
def pulled(tables: Tables, rucio: RucioServer, tmp_path: Path) -> Any:
    def pulled(*names: str, day: dt.date = DAY, path: str | None = None) -> PullSummary:
        listed = tmp_path / "datasets.txt"
        listed.write_text("# in use\n" + "".join(f"{name}\n" for name in names))
        at = session(rucio.url, tmp_path)
        path = path or str(listed)
        return catalogue.pull(tables, session=at, path=path, day=day, in_use_days=14, scopes={})

    return pulled


def files(tables: Tables) -> dict[str, dict[str, Any]]:
    return {row["did"]: row for row in tables.read_arrow(FILES).to_pylist()}


@pytest.mark.parametrize("at_once", [1000, 2], ids=["one page", "many pages"])
def test_the_files_of_datasets_are_as_the_server_was_told(
    held: dict[str, list[str]], pulled: Any, tables: Tables, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rucio_session, "DIDS_AT_ONCE", at_once)
    monkeypatch.setattr(rucio_catalogue, "FILES_AT_ONCE", at_once)
    summary = pulled(f"{SCOPE}:{AOD}", f"{SCOPE}:{AOD}.empty", f"{CMS}:{BLOCKS}", f"{CMS}:{BLOCKS}-1")
    by_did = files(tables)
    expected = {did: origins for did, origins in held.items() if named(7)[6] not in did}
    assert {did: row["origins"] for did, row in by_did.items()} == expected
    assert (summary.n_rows, summary.n_new, summary.n_duplicates, dict(summary.n_rejected)) == (12, 12, 0, {})
    for index, name in enumerate(named(6)):
        row = by_did[f"{SCOPE}:{name}"]
        assert (row["size_bytes"], row["adler32"]) == (1000 + index, f"{index:08x}")
        assert (row["dataset"], row["tier"]) == (f"{SCOPE}:{AOD}", "AOD")
        assert (row["campaign"], row["locked"]) == (SCOPE, ["ORIGIN_A"])
        assert row["created_at"] <= row["known_at"] <= dt.datetime.now(dt.UTC)
        assert row["updated_at"] == dt.datetime(2030, 3, 5, tzinfo=dt.UTC)
    block = by_did[f"{CMS}:/store/mc/RunIII/TT/AODSIM/P-v1/1/0.root"]
    assert (block["dataset"], block["tier"], block["locked"]) == (f"{CMS}:{BLOCKS}-1", "AODSIM", [])


def test_a_second_pull_changes_nothing_and_a_later_one_what_has_changed(
    held: dict[str, list[str]], pulled: Any, tables: Tables, rucio: RucioServer
) -> None:
    scope = f"s{uuid.uuid4().hex[:8]}"
    admin = rucio.admin()
    admin.add_scope("root", scope)
    admin.add_replicas("ORIGIN_A", replicas(scope, ["one", "two"]))
    admin.add_dataset(scope, "ds")
    admin.attach_dids(scope, "ds", dids(scope, ["one"]))
    admin.set_metadata(scope, "ds", "campaign", "MC23:MC23a")
    admin.set_metadata(scope, "ds", "datatype", "AOD")
    assert pulled(f"{scope}:ds").n_new == 1
    before = tables.head(FILES)
    again = pulled(f"{scope}:ds")
    assert (again.n_new, again.n_duplicates, tables.head(FILES)) == (0, 1, before)

    admin.attach_dids(scope, "ds", dids(scope, ["two"]))
    admin.update_replicas_states("ORIGIN_A", [{"scope": scope, "name": "one", "state": "U"}])
    admin.add_replicas("ORIGIN_B", replicas(scope, ["one"]))
    assert pulled(f"{scope}:ds", day=DAY + dt.timedelta(1)).n_new == 2
    by_did = files(tables)
    assert {row["name"]: row["origins"] for row in by_did.values()} == {
        "one": ["ORIGIN_B"],
        "two": ["ORIGIN_A"],
    }
    # Names that tell nothing have the dataset's.
    assert {(row["tier"], row["campaign"]) for row in by_did.values()} == {("AOD", "MC23:MC23a")}


def test_patterns_and_files_may_be_named_too(held: dict[str, list[str]], pulled: Any, tables: Tables) -> None:
    assert pulled(f"{SCOPE}:*recon.AOD*", f"{SCOPE}:{named(7)[6]}").n_new == 7
    by_did = files(tables)
    assert {did: row["origins"] for did, row in by_did.items()} == {
        did: origins for did, origins in held.items() if did.startswith(SCOPE)
    }
    assert by_did[f"{SCOPE}:{named(7)[6]}"]["dataset"] is None


def test_what_rucio_does_not_know_is_refused_by_its_name(
    held: dict[str, list[str]], pulled: Any, tables: Tables
) -> None:
    summary = pulled(f"{SCOPE}:gone", "no did", "nowhere:x*", f"{SCOPE}:{AOD}", f"{SCOPE}:no name!", "a b:c")
    assert (summary.n_rows, summary.n_new) == (11, 6)
    assert dict(summary.n_rejected) == {
        "unknown to Rucio": 1,
        "a name that Rucio's rules refuse": 2,
        "not a DID, as scope:name": 1,
        "no dataset matches": 1,
    }
    samples = {
        row["reason"]: json.loads(row["sample"])["did"] for row in tables.read_arrow(REJECTS).to_pylist()
    }
    assert samples["unknown to Rucio"] == f"{SCOPE}:gone"
    with pytest.raises(InputError, match="names no dataset"):
        pulled()


def test_the_datasets_in_use_are_those_that_were_read_lately(
    held: dict[str, list[str]], pulled: Any, tables: Tables
) -> None:
    day = dt.datetime.combine(DAY, dt.time(), dt.UTC)
    rows = [
        {"dataset": dataset, "accessed_at": day - dt.timedelta(days)}
        for days, dataset in ((1, f"{CMS}:{BLOCKS}"), (14, None), (15, f"{SCOPE}:{AOD}"))
    ]
    tables.replace_arrow(ACCESSES, accesses(rows))
    summary = pulled(path="in-use")
    assert (summary.n_new, {row["scope"] for row in files(tables).values()}) == (6, {CMS})


def test_an_answer_that_is_cut_or_late_is_asked_for_again_whole(
    held: dict[str, list[str]], proxy: faulty_proxy.FaultyProxy, tmp_path: Path
) -> None:
    at = session(proxy.url, tmp_path, timeout_s=4)
    at.ask("log in", lambda client: [client.whoami()])
    proxy.faults.extend(["pass", "pass", "cut", "500", "429", "pass", "slow"])
    (rows,) = [batch for batch in rucio_catalogue.rows(at, [f"{SCOPE}:{AOD}"]) if batch]
    assert sorted(row["name"] for row in rows) == named(6)
    assert proxy.paths.count("/dids/bulkfiles") == 4


@pytest.mark.parametrize(
    ("fault", "words"),
    [("503", "503"), ("500", "500"), ("slow", "ReadTimeout"), ("cut", "ChunkedEncodingError|IncompleteRead")],
)
def test_a_server_that_stays_broken_is_one_line_with_its_remedy(
    rucio: RucioServer, proxy: faulty_proxy.FaultyProxy, tmp_path: Path, fault: str, words: str
) -> None:
    at = session(proxy.url, tmp_path, timeout_s=4, attempts=2)
    at.ask("log in", lambda client: [client.whoami()])
    proxy.faults.extend([fault] * 20)
    with pytest.raises(ServiceError, match=f"does not answer .RSEs., after 2 tries: .*({words})") as caught:
        at.ask("RSEs", lambda client: client.list_rses())
    assert "\n" not in str(caught.value)


def test_a_server_that_is_away_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"http://127.0.0.1:9 does not answer .*is it up"):
        session("http://127.0.0.1:9", tmp_path, attempts=2).ask("RSEs", lambda client: client.list_rses())


def test_an_expired_token_is_renewed(rucio: RucioServer, tmp_path: Path) -> None:
    at = session(rucio.url, tmp_path)
    assert at.ask("who", lambda client: [client.whoami()["account"]]) == ["root"]
    (token,) = (tmp_path / "tokens").rglob("auth_token_for_account_root")
    assert token.stat().st_mode & 0o777 == 0o600
    first = token.read_text()
    token.write_text("of another day")
    assert session(rucio.url, tmp_path).ask("who", lambda client: [client.whoami()["account"]]) == ["root"]
    renewed = token.read_text()
    assert renewed not in ("of another day", first)


def test_a_token_that_expires_meanwhile_is_renewed(
    held: dict[str, list[str]], proxy: faulty_proxy.FaultyProxy, tmp_path: Path
) -> None:
    at = session(proxy.url, tmp_path, attempts=1)
    at.ask("RSEs", lambda client: client.list_rses())
    proxy.faults.append("401")
    proxy.paths.clear()
    assert at.ask("RSEs", lambda client: client.list_rses())
    assert proxy.paths == ["/rses/", "/auth/userpass", "/rses/"]


def test_a_refused_login_names_the_account_and_not_the_password(rucio: RucioServer, tmp_path: Path) -> None:
    at = session(rucio.url, tmp_path, password="not-the-secret")
    with pytest.raises(ServiceError, match=r"refuses account root by userpass .*check \[rucio\]") as caught:
        at.ask("who", lambda client: [client.whoami()])
    assert "not-the-secret" not in f"{caught.value} {access(rucio.url, tmp_path, password='not-the-secret')}"


def test_a_bearer_token_is_taken_from_the_environment_and_never_asked_for(
    rucio: RucioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEARER_TOKEN", rucio.admin().auth_token)
    at = session(rucio.url, tmp_path, auth_type="oidc")
    assert at.ask("who", lambda client: [client.whoami()["account"]]) == ["root"]
    monkeypatch.setenv("BEARER_TOKEN", "expired")
    with pytest.raises(ServiceError, match="refuses account root by oidc"):
        session(rucio.url, tmp_path, auth_type="oidc").ask("who", lambda client: [client.whoami()])
    monkeypatch.setenv("BEARER_TOKEN", "")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="BEARER_TOKEN_FILE"):
        session(rucio.url, tmp_path, auth_type="oidc")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"password": ""}, "CACHECAST_RUCIO__PASSWORD"),
        ({"auth_type": "x509", "client_cert": "/no/cert", "client_key": "/no/key"}, "/no/cert"),
        ({"auth_type": "x509_proxy", "client_proxy": "/no/proxy"}, "/no/proxy"),
        ({"auth_type": "x509_proxy"}, "X509_USER_PROXY"),
    ],
    ids=lambda value: "",
)
def test_a_missing_credential_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str], words: str
) -> None:
    monkeypatch.delenv("X509_USER_PROXY", raising=False)
    with pytest.raises(CachecastError, match=words):
        session("http://127.0.0.1:9", tmp_path, **setting)


def test_the_command_pulls_from_the_configured_server(
    held: dict[str, list[str]], rucio: RucioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, root = tmp_path / "datasets.txt", str(tmp_path / "t")
    listed.write_text(f"{CMS}:{BLOCKS}\n")
    words = ["pull", "--source", "rucio_server", "--input", str(listed), "--day", str(DAY), "--json"]
    login = {"URL": rucio.url, "ACCOUNT": "root", "USERNAME": "ddmlab", "PASSWORD": "secret"}
    for key, value in login.items():
        monkeypatch.setenv(f"CACHECAST_RUCIO__{key}", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answer = watched_java.cachecast(tmp_path / "watched", *words, "--tables", root)
    assert (answer.returncode, answer.spark) == (0, set()), answer.stderr
    assert json.loads(answer.stdout)["n_new"] == 6
    assert Tables(root).read_arrow(FILES).num_rows == 6
    assert len(list(Path(root, "files").glob("data-*"))) == 1
    refused = CliRunner().invoke(app, [*words, "--tables", root, "--new-only"])
    assert "rucio_server is a server: drop it" in str(refused.exception)
