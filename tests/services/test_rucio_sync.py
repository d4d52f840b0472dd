"""Volatile replicas in step with a cache: a real Rucio, its cache consumer, and a real broker between."""

import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rucio_server
from folder_site import folder_site
from raw_records import hashed
from rucio.common import exception as rucio_exception
from rucio_server import RucioServer
from stomp_broker import KeepingBroker
from typer.testing import CliRunner
from waiting import eventually

from features.common.errors import CachecastError, ServiceError
from jobs.cli.main import app
from jobs.loop.ingest.sources import rucio_catalogue
from prefetch.directory import DirectoryTarget
from prefetch.lfn import Did
from prefetch.rucio import rse as rse_room
from prefetch.rucio.broker import FILES_PER_MESSAGE, Broker, BrokerAccess
from prefetch.rucio.rse import ReportedReplicas, RseDoor, Sync, changes
from prefetch.rucio.session import Session

pytestmark = pytest.mark.service
TOPIC = "/topic/rucio.fax"
DOOR = RseDoor("xc1.example.org", 1094, "/atlas/rucio", "hash")


@pytest.fixture
def broker_port(bus: KeepingBroker) -> int:
    return bus.port


SUBSCRIBED_S, PATIENCE_S = 5.0, 120.0
"""A consumer says that it connects just before it subscribes; a topic keeps nothing for who comes late."""


@pytest.fixture
def consumer(rucio: RucioServer, broker_port: int) -> Iterator[None]:
    # Each test has its own: two that listen at a time add the same replicas, and one of them fails.
    with rucio_server.consuming(rucio, broker_port):
        time.sleep(SUBSCRIBED_S)
        yield


@pytest.fixture
def broker(broker_port: int) -> Broker:
    return Broker(BrokerAccess(f"stomp://127.0.0.1:{broker_port}", TOPIC, "rucio", "rucio", timeout_s=10))


class Site:
    """A scope with files that Rucio knows, at an origin, and a safe cache RSE."""

    def __init__(self, server: RucioServer, folder: Path, n_files: int) -> None:
        self.admin = server.admin()
        self.session = Session(rucio_server.access(server.url, folder))
        mark = uuid.uuid4().hex[:8]
        self.scope, self.rse, self.origin = f"mc{mark}", f"XCACHE-{mark.upper()}", f"ORIGIN-{mark.upper()}"
        self.admin.add_scope("root", self.scope)
        self.admin.add_rse(self.origin)
        self.files = [Did(self.scope, f"AOD.{i:06d}.root") for i in range(n_files)]
        rows = [{**did._asdict(), "bytes": 10, "adler32": "00000001"} for did in self.files]
        for first in range(0, n_files, 250):
            self.admin.add_replicas(self.origin, rows[first:][:250])
        rse_room.set_up(self.session, self.rse, DOOR)
        self.told = ReportedReplicas(str(folder / "journal.db"))

    def at_cache(self) -> set[Did]:
        """What Rucio shows at the cache's RSE."""
        rows = self.admin.list_replicas(
            [did._asdict() for did in self.files], sort="random", rse_expression=self.rse
        )
        return {Did(row["scope"], row["name"]) for row in rows if self.rse in row["states"]}

    def sync(self, broker: Broker) -> Sync:
        return Sync(self.rse, reported=self.told, broker=broker, session=self.session)

    def close(self) -> None:
        self.told.close()


@pytest.fixture
def site(rucio: RucioServer, tmp_path: Path) -> Iterator[Callable[[int], Site]]:
    sites: list[Site] = []

    def site(n_files: int) -> Site:
        sites.append(Site(rucio, tmp_path, n_files))
        return sites[-1]

    yield site
    for begun in sites:
        begun.close()


def test_each_file_is_in_one_of_the_messages(broker_port: int) -> None:
    topic = f"/topic/{uuid.uuid4().hex}"
    broker = Broker(BrokerAccess(f"stomp://127.0.0.1:{broker_port}", topic, timeout_s=30))
    dids = [Did("s", f"f{n:03}") for n in range(FILES_PER_MESSAGE + 5)]
    with broker.subscribed([topic], client=topic[-8:], most_bytes=2**20) as messages:
        broker.publish("add_replicas", "X", dids)
        arrived = [messages.next(PATIENCE_S), messages.next(PATIENCE_S)]
        assert messages.next(1) is None
    files = [json.loads(message.body or "")["files"] for message in arrived if message is not None]
    assert [len(page) for page in files] == [FILES_PER_MESSAGE, 5]
    assert [Did(**of) for page in files for of in page] == dids


@pytest.mark.usefixtures("consumer")
def test_replicas_come_and_go_with_the_caches_content(broker: Broker, site: Callable[[int], Site]) -> None:
    here = site(FILES_PER_MESSAGE + 5)
    sync, stranger = here.sync(broker), Did(here.scope, "nobody.knows.root")
    odd = Did(here.scope, "no name by Rucio's rules")

    def report(held: list[Did]) -> dict[str, int]:
        """What came of it; what Rucio's consumer lost is reported again, as the next sync would."""
        added, removed, deadline = 0, 0, time.monotonic() + PATIENCE_S
        while True:
            sync.report(changes(held, here.told.states(here.rse)), now_s=1.0)
            counts = sync.confirm(wait_s=10)
            added, removed = added + counts["added"], removed + counts["removed"]
            if not counts["unconfirmed"] or time.monotonic() > deadline:
                return counts | {"added": added, "removed": removed}

    first = report([*here.files, stranger, odd])
    assert first == {"added": len(here.files), "removed": 0, "unknown": 2, "unconfirmed": 0}
    assert here.at_cache() == set(here.files)
    # Nothing new, nothing told.
    assert changes([*here.files, stranger, odd], here.told.states(here.rse)) == ([], [], [])
    first_files = here.files[: FILES_PER_MESSAGE - 1]
    assert report(first_files) == {"added": 0, "removed": 6, "unknown": 0, "unconfirmed": 0}
    assert here.at_cache() == set(first_files)
    assert report(here.files)["added"] == 6
    assert report([])["removed"] == len(here.files)
    assert not here.at_cache()
    assert not here.told.states(here.rse)


def test_what_the_consumer_missed_is_told_again(
    rucio: RucioServer, broker: Broker, broker_port: int, site: Callable[[int], Site]
) -> None:
    """No consumer listens at first, as after a crash: the topic keeps nothing."""
    here = site(2)
    deaf = Broker(BrokerAccess(f"stomp://127.0.0.1:{broker_port}", "/topic/nobody", timeout_s=10))
    sync = here.sync(deaf)
    sync.report(changes(here.files, {}), now_s=1.0)
    assert sync.confirm(wait_s=0) == {"added": 0, "removed": 0, "unknown": 0, "unconfirmed": 2}
    again = changes(here.files, here.told.states(here.rse))
    assert again.add == here.files
    with rucio_server.consuming(rucio, broker_port):
        time.sleep(SUBSCRIBED_S)
        here.sync(broker).report(again, now_s=2.0)
        assert here.sync(broker).confirm(wait_s=PATIENCE_S)["added"] == 2


@pytest.mark.usefixtures("consumer")
def test_what_rucio_lost_is_found_by_a_recheck(broker: Broker, site: Callable[[int], Site]) -> None:
    here = site(3)
    sync = here.sync(broker)
    sync.report(changes(here.files, {}), now_s=1.0)
    assert sync.confirm(wait_s=PATIENCE_S)["added"] == 3
    broker.publish("delete_replicas", here.rse, here.files[:1])
    assert eventually(lambda: len(here.at_cache()) < 3, PATIENCE_S)
    assert changes(here.files, here.told.states(here.rse)).add == []
    sync.recheck([])
    assert changes(here.files, here.told.states(here.rse)).add == here.files[:1]
    here.told.forget(here.rse, here.files)  # as with the journal
    sync.recheck(here.files)
    assert changes([], here.told.states(here.rse)).remove == here.files[1:]


@pytest.mark.usefixtures("consumer")
def test_what_a_cache_holds_is_no_origin(broker: Broker, site: Callable[[int], Site], tmp_path: Path) -> None:
    here = site(4)
    here.admin.add_dataset(here.scope, "ds")
    here.admin.attach_dids(here.scope, "ds", [did._asdict() for did in here.files])
    sync = here.sync(broker)
    sync.report(changes(here.files[:2], {}), now_s=1.0)
    assert sync.confirm(wait_s=PATIENCE_S)["added"] == 2
    for name in ("ds", here.files[0].name):
        rows = [
            row for batch in rucio_catalogue.rows(here.session, [f"{here.scope}:{name}"]) for row in batch
        ]
        assert [row["rses"] for row in rows] == [[here.origin]] * len(rows)
        assert rows


def test_a_broker_that_is_away_or_silent_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (9, silent.getsockname()[1]):
            access = BrokerAccess(f"stomp://127.0.0.1:{port}", TOPIC, "rucio", "pass-word", timeout_s=1)
            with pytest.raises(ServiceError, match=rf"broker stomp://127.0.0.1:{port} .*is it up") as caught:
                Broker(access).publish("add_replicas", "X", [Did("s", "n")])
            assert "pass-word" not in f"{caught.value} {access}"


def test_a_set_up_rse_refuses_rules_and_the_reaper(rucio: RucioServer, site: Callable[[int], Site]) -> None:
    here = site(1)
    assert {check.what: check.state for check in rse_room.check(here.session, here.rse)} == dict.fromkeys(
        ("volatile", "not deletable", "not writable", "readable", "not greedy", "read only", "no rules"), "ok"
    )
    assert rse_room.set_up(here.session, here.rse, DOOR) == []
    for rse in (here.rse, here.origin):
        here.admin.set_local_account_limit("root", rse, -1)
    with pytest.raises(rucio_exception.RSEWriteBlocked):
        here.admin.add_replication_rule([here.files[0]._asdict()], 1, here.rse)
    here.admin.add_replication_rule([here.files[0]._asdict()], 1, f"{here.rse}|{here.origin}")
    (rule,) = here.admin.list_did_rules(here.scope, here.files[0].name)
    (lock,) = here.admin.list_replica_locks(rule["id"])
    assert lock["rse"] == here.origin
    # The one way left.
    (rule,) = here.admin.add_replication_rule(
        [here.files[0]._asdict()], 1, here.rse, ignore_availability=True
    )
    (bad,) = [check for check in rse_room.check(here.session, here.rse) if check.state == "bad"]
    assert (bad.what, rule in bad.detail) == ("no rules", True)


def test_an_unsafe_rse_is_found_and_mended(rucio: RucioServer, site: Callable[[int], Site]) -> None:
    here = site(1)
    rse = f"{here.rse}-OLD"
    assert [check.what for check in rse_room.check(here.session, rse)] == ["exists"]
    here.admin.add_rse(rse, volatile=True)
    here.admin.add_rse_attribute(rse, "greedyDeletion", True)
    domains = {"wan": {"read": 1, "write": 1, "delete": 1, "third_party_copy_read": 1}}
    protocol = {"scheme": "root", "hostname": "h", "port": 1, "prefix": "/", "domains": domains}
    here.admin.add_protocol(rse, protocol | {"impl": "rucio.rse.protocols.xrootd.Default"})
    here.admin.set_local_account_limit("root", rse, -1)
    here.admin.add_dataset(here.scope, "ds")
    here.admin.attach_dids(here.scope, "ds", [here.files[0]._asdict()])
    (rule,) = here.admin.add_replication_rule([{"scope": here.scope, "name": "ds"}], 1, rse)
    bad = {check.what: check.detail for check in rse_room.check(here.session, rse) if check.state == "bad"}
    assert list(bad) == ["not deletable", "not writable", "not greedy", "read only", "no rules"]
    assert rule in bad["no rules"]
    assert "delete, third_party_copy_read, write" in bad["read only"]
    assert rse_room.set_up(here.session, rse, DOOR) == ["made not writable, not deletable"]
    left = {check.what for check in rse_room.check(here.session, rse) if check.state == "bad"}
    assert left == {"not greedy", "read only", "no rules"}
    with pytest.raises(ServiceError, match=f"{here.origin} is there and holds files of its own"):
        rse_room.set_up(here.session, here.origin, DOOR)


@pytest.mark.usefixtures("consumer")
def test_the_commands_keep_rucio_in_step_with_a_cache(
    rucio: RucioServer,
    broker_port: int,
    site: Callable[[int], Site],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = site(3)
    rse = f"{here.rse}-CLI"
    cache = DirectoryTarget("xc", tmp_path / "origin", tmp_path / "cache")
    for did in here.files:
        path = cache.namespace / hashed(did.scope, did.name, "atlas/rucio")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"content")
    (cache.namespace / "other.root").write_bytes(b"of no experiment")
    conf = str(folder_site(tmp_path, f'rse = "{rse}"\n', cache="xc"))
    options = {"URL": rucio.url, "ACCOUNT": "root", "USERNAME": "ddmlab", "PASSWORD": "secret"}
    options |= {"BROKER": f"stomp://127.0.0.1:{broker_port}", "BROKER_USERNAME": "r", "BROKER_PASSWORD": "r"}
    for key, value in options.items():
        monkeypatch.setenv(f"CACHECAST_RUCIO__{key}", value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def run(*words: str, code: int = 0) -> Any:
        answer = CliRunner().invoke(app, ["rucio", *words, "--conf", conf, "--json"])
        assert answer.exit_code == code, answer
        return json.loads(answer.stdout)

    assert run("check", code=1)[0]["what"] == "exists"
    assert run("setup-rse", "--cache", "xc")["done"] == ["added, volatile"]
    assert {check["state"] for check in run("check")} == {"ok"}
    assert run("sync", "--cache", "xc", "--dry-run")["to_add"] == 3
    first = run("sync", "--cache", "xc")
    assert (first["held"], first["unnamed"], first["added"], first["unconfirmed"]) == (4, 1, 3, 0)
    for path in cache.namespace.rglob(here.files[0].name):
        path.unlink()
    recheck = ["rucio", "sync", "--cache", "xc", "--recheck", "--conf", conf]
    refused = CliRunner().invoke(app, recheck)
    assert "1 of 3 replicas" in str(refused.exception)
    assert run("sync", "--cache", "xc", "--recheck", "--force")["removed"] == 1
    here.rse = rse
    assert here.at_cache() == set(here.files[1:])
    assert b"secret" not in (tmp_path / "journal.db").read_bytes()


def test_a_cache_without_an_rse_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "caches").mkdir()
    toml = 'name = "xc"\nkind = "xcache"\nurl = "root://127.0.0.1:9"\ncapacity = "1TB"\n'
    (tmp_path / "caches" / "xc.toml").write_text(toml)
    for words, message in ((["check"], "no cache has an RSE"), (["sync", "--cache", "xc"], "has no RSE")):
        answer = CliRunner().invoke(app, ["rucio", *words, "--conf", str(tmp_path)])
        assert isinstance(answer.exception, CachecastError)
        assert message in str(answer.exception)
