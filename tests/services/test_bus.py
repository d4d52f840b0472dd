"""What sites publish, followed from a real broker: killed meanwhile, hostile, full, over TLS.

Nothing is lost or counted twice, known by what the tests published themselves.
"""

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stomp
from cachecast_main import asked, cachecast
from commands import COMMAND
from daemons import PATIENCE_S, needed
from monitoring import Sender, close, closing, fstream, opening
from stomp.exception import StompException
from stomp_broker import KeepingBroker, running
from waiting import eventually

from features.schema import ACCESSES
from jobs.ground.store.tables import Tables

pytestmark = [pytest.mark.long, pytest.mark.service]

TOPIC, QUEUE = "/topic/xrootd.shoveler", "/queue/xrootd.collector"
PASSWORD = "pass-word"
DAY = "2026-03-02"
NOW_S = 1_772_400_000
N_OF_EACH = 60


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KeepingBroker]:
    """To be killed."""
    yield from needed("a real message broker", running(tmp_path / "broker"))


class Collector:
    """`cachecast collect` in a process of its own; `log` has its lines once it has ended."""

    def __init__(self, out: Path, broker: str, *words: str, **env: str) -> None:
        line = [*COMMAND, "collect", "--json", "--out", str(out), "--broker", broker]
        line += ["--subscribe", TOPIC, "--subscribe", QUEUE, *words]
        login = {"CACHECAST_COLLECT__BROKER_USERNAME": "u", "CACHECAST_COLLECT__BROKER_PASSWORD": PASSWORD}
        self.log_file = out.parent / f"collect-{time.monotonic_ns()}.log"
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                line, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | login | env
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def says(self, what: str) -> bool:
        assert self.process.poll() is None, self.log
        return what in self.log

    def stop(self) -> dict[str, int]:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, self.log
        assert PASSWORD not in self.log
        counts: dict[str, int] = json.loads(out)
        return counts

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=120)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    collectors: list[Collector] = []

    def started(broker: str, *words: str, **env: str) -> Collector:
        collectors.append(Collector(tmp_path / "out", broker, *words, **env))
        return collectors[-1]

    yield started
    for collector in collectors:
        collector.kill()


class Publisher:
    """Publishes until the broker says that it has a message, as shovelers and collectors do."""

    def __init__(self, port: int) -> None:
        self.port, self.n_confirmed = port, 0
        self._connection: Any = None

    def publish(self, destination: str, body: bytes) -> None:
        assert eventually(lambda: self._confirmed(destination, body), PATIENCE_S, 0.3)
        self.n_confirmed += 1

    def _confirmed(self, destination: str, body: bytes) -> bool:
        with contextlib.suppress(StompException, OSError):
            if self._connection is None:
                self._connection = stomp.Connection12([("127.0.0.1", self.port)], reconnect_attempts_max=1)
                self._receipts = _Receipts()
                self._connection.set_listener("", self._receipts)
                self._connection.connect("u", "p", wait=True)
            receipt = str(time.monotonic_ns())
            self._connection.send(destination, body, headers={"persistent": "true"}, receipt=receipt)
            if self._receipts.has(receipt):
                return True
        self._connection = None
        return False


class _Receipts(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self._got: set[str] = set()
        self._is_lost = False

    def on_receipt(self, frame: Any) -> None:
        self._got.add(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self._is_lost = True

    def has(self, receipt: str) -> bool:
        eventually(lambda: receipt in self._got or self._is_lost, 60, 0.001)
        return receipt in self._got


def shovelled(datagram: bytes, remote: str) -> bytes:
    data = base64.b64encode(datagram).decode()
    return json.dumps({"remote": remote, "version": "1.4.0", "data": data}).encode()


def g_stream(number: int) -> bytes:
    sender = Sender("xc1.example.org", 1094, "xc1", "EDGE", NOW_S - 9, 7, number)
    return sender.gstream(close_of(f"/store/g/{number}", number), ahead=0) + b"\0"


def close_of(lfn: str, number: int) -> dict[str, Any]:
    return close(lfn, 10**6, NOW_S + number + 5, remotes=[])


def event(number: int) -> dict[str, Any]:
    place = {"server_ip": "192.0.2.9", "server_hostname": "xc2.example.org"}
    return close_of(f"/store/e/{number}", number) | place | {"sid": f"{NOW_S}#192.0.2.9#40000"}


def opened_then_closed(number: int) -> list[bytes]:
    records = (opening(number, f"/store/f/{number}", size=10**6), closing(number, 10**6, 0))
    return [
        fstream(record, pseq=2 * number + i, begin=NOW_S + number, end=NOW_S + number + 1, stod=NOW_S, sid=7)
        for i, record in enumerate(records)
    ]


def wlcg(number: int) -> dict[str, Any]:
    file = {"file_lfn": f"/store/w/{number}", "unique_id": f"id-{number}", "file_size": 10**6}
    hosts = {"server_host": "se1", "server_domain": "example.org", "client_host": "wn1"}
    read = {"read_bytes": 10**6, "operation": "read", "metadata": {"timestamp": NOW_S * 1000}}
    return {**file, **hosts, **read, "start_time": NOW_S + number, "end_time": NOW_S + number + 5}


def own(number: int) -> dict[str, Any]:
    return {
        **{"filename": f"/store/o/{number}", "filesize": 10**6, "read": 10**6, "readv": 0, "write": 0},
        **{"server_hostname": "se1.example.org", "host": "wn1.example.org", "site": "EDGE"},
        **{"start_time": (NOW_S + number) * 1000, "end_time": (NOW_S + number + 5) * 1000},
    }


def publications() -> list[tuple[str, bytes]]:
    """A site's, in the order of their numbers; all are different."""
    return [
        message
        for number in range(1, N_OF_EACH + 1)
        for message in (
            (TOPIC, shovelled(g_stream(number), "192.0.2.7:40000")),
            *((TOPIC, shovelled(datagram, "192.0.2.8:40000")) for datagram in opened_then_closed(number)),
            (QUEUE, json.dumps(event(number)).encode()),
            (QUEUE, json.dumps(wlcg(number)).encode()),
            (QUEUE, json.dumps(own(number)).encode()),
        )
    ]


def names(*kinds: str) -> list[str]:
    return sorted(f"/store/{kind}/{number}" for kind in kinds for number in range(1, N_OF_EACH + 1))


SOURCES = {
    "xcache_gstream": ("gstream", names("g", "e")),
    "xrootd_fstream": ("fstream", names("f")),
    "cms_aaa": ("closes", names("w", "o")),
}


def n_kept(out: Path) -> int:
    """Different records in all files."""
    contents = [path.read_bytes() for path in out.glob("bus/*/*-*")]
    lfns = {name for content in contents for name in re.findall(rb'/store/[gewo]/\d+"', content)}
    lines = {line for content in contents for line in content.splitlines() if b'"data": "' in line}
    return len(lfns) + len(lines)


def pulled(tables: Path, source: str, folder: Path, *words: str) -> dict[str, Any]:
    line = ["pull", "--source", source, "--input", str(folder), "--day", DAY, "--tables", str(tables), *words]
    summary: dict[str, Any] = asked(*line)
    return summary


def test_broker_and_collector_are_killed_and_nothing_is_lost_or_twice(
    own_broker: KeepingBroker, start: Callable[..., Collector], tmp_path: Path
) -> None:
    url, out = f"stomp://127.0.0.1:{own_broker.port}", tmp_path / "out"
    collector = start(url, "--roll-size", "20kB")
    assert eventually(lambda: collector.says("subscribed to"))
    publisher, all_of_them = Publisher(own_broker.port), publications()

    def publish() -> None:
        for destination, body in all_of_them:
            publisher.publish(destination, body)

    def has_confirmed(least: int) -> bool:
        return publisher.n_confirmed >= least

    publishing = threading.Thread(target=publish, daemon=True)
    publishing.start()
    n_of_them = len(all_of_them)
    for share in (5, 4, 3, 2):
        assert eventually(partial(has_confirmed, n_of_them // share), PATIENCE_S)
        if share in (5, 2):
            collector.kill()
            time.sleep(1)
            collector = start(url, "--roll-size", "20kB")
        if share in (4, 2):
            own_broker.kill()
            time.sleep(1)
            own_broker.start()
    publishing.join(PATIENCE_S)
    assert publisher.n_confirmed == len(all_of_them)
    assert eventually(lambda: n_kept(out) >= len(all_of_them), PATIENCE_S)
    counts = collector.stop()
    assert (counts["bus_malformed"], counts["bus_other"]) == (0, 0)
    assert not list(out.glob("bus/*/*.part"))
    for source, (folder, expected) in SOURCES.items():
        tables = tmp_path / source
        pulled(tables, source, out / "bus" / folder, "--new-only")
        read = Tables(str(tables)).read_arrow(ACCESSES)
        assert sorted(read["name"].to_pylist()) == expected
        assert set(read["read_bytes"].to_pylist()) == {10**6}
        assert pulled(tables, source, out / "bus" / folder)["n_new"] == 0


HOSTILE = [
    *(b"", b"\0" * 5000, os.urandom(5000), b"{" * 100_000, b"x" * 5 * 2**20, b"\0" * 5 * 2**20),
    *(b'{"file_lfn": ', b'{"remote": "a:1", "data": "%"}', b"[]", b"null", b"\xff\xfe{\0}\0"),
    *(
        json.dumps({"a": "\ud800"}).encode(),
        b"<statistics/>",
        b'{"TPC": "http"}',
        b"MESSAGE\nmessage-id:1\nack:1\n\n\0RECEIPT\nreceipt-id:0\n\n\0",
    ),
]


def test_hostile_messages_are_counted_and_stop_nothing(
    bus: KeepingBroker, start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start(f"stomp://127.0.0.1:{bus.port}", "--log-every", "1s")
    assert eventually(lambda: collector.says("subscribed to"))
    publisher = Publisher(bus.port)
    for number, body in enumerate(HOSTILE, 1):
        publisher.publish(QUEUE, body)
        publisher.publish(QUEUE, json.dumps(wlcg(number)).encode())
    assert eventually(lambda: n_kept(tmp_path / "out") >= len(HOSTILE))
    assert eventually(lambda: collector.says(f"followed: messages {2 * len(HOSTILE)},"))
    assert eventually(lambda: collector.says("hold no record of a cache, and were acknowledged"))
    counts = collector.stop()
    assert counts["bus_messages"] == 2 * len(HOSTILE)
    assert counts["bus_closes"] == len(HOSTILE)
    # Of an empty array there is nothing to say.
    assert (counts["bus_too_large"], counts["bus_other"]) == (2, 2)
    assert counts["bus_malformed"] == len(HOSTILE) - 2 - 2 - 1
    assert counts["bus_failures"] == 0
    summary = pulled(tmp_path / "tables", "cms_aaa", tmp_path / "out" / "bus" / "closes")
    assert (summary["n_new"], summary["n_rejected"]) == (len(HOSTILE), {})


def test_while_the_folder_is_full_messages_stay_at_the_broker(
    bus: KeepingBroker, start: Callable[..., Collector], tmp_path: Path
) -> None:
    out, publisher = tmp_path / "out", Publisher(bus.port)
    for destination, body in publications():
        if destination == QUEUE:
            publisher.publish(destination, body)
    url = f"stomp://127.0.0.1:{bus.port}"
    collector = start(url, "--log-every", "1s", CACHECAST_COLLECT__QUOTA="20kB")
    assert eventually(lambda: collector.says("ALARM: captures in"))
    counts = collector.stop()
    assert 0 < counts["bus_messages"] < 3 * N_OF_EACH and counts["bus_held_bytes"] < 40_000
    collector = start(url)
    assert eventually(lambda: n_kept(out) >= 3 * N_OF_EACH)
    counts_after = collector.stop()
    assert counts["bus_messages"] + counts_after["bus_messages"] == 3 * N_OF_EACH


def test_a_full_disk_ends_it_and_nothing_is_lost(
    bus: KeepingBroker, start: Callable[..., Collector], tmp_path: Path
) -> None:
    out, publisher = tmp_path / "out", Publisher(bus.port)
    for number in range(1, N_OF_EACH + 1):
        publisher.publish(QUEUE, json.dumps(wlcg(number)).encode())
    url = f"stomp://127.0.0.1:{bus.port}"
    limited = f"ulimit -f 8; trap '' XFSZ; exec {sys.executable} -c 'from jobs.cli.main import main; main()'"
    words = ["collect", "--out", str(out), "--broker", url, "--subscribe", QUEUE]
    answer = subprocess.run(
        ["bash", "-c", f'{limited} "$@"', "-", *words],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert answer.returncode == 1 and "cannot write captures to" in answer.stderr.replace("\n", " ")
    assert "Traceback" not in answer.stderr
    collector = start(url)
    assert eventually(lambda: n_kept(out) >= N_OF_EACH)
    collector.stop()
    summary = pulled(tmp_path / "tables", "cms_aaa", out / "bus" / "closes")
    assert (summary["n_new"], summary["n_rejected"]) == (N_OF_EACH, {})


def test_udp_and_a_broker_are_followed_beside_each_other(
    bus: KeepingBroker, start: Callable[..., Collector], tmp_path: Path
) -> None:
    collector = start(
        f"stomp://127.0.0.1:{bus.port}", "--port", "0", CACHECAST_METRICS__FOLDER=str(tmp_path / "m")
    )
    assert eventually(lambda: collector.says("subscribed to") and collector.says("listening on UDP"))
    port = re.search(r"UDP 127\.0\.0\.1:(\d+)", collector.log)
    assert port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(g_stream(1), ("127.0.0.1", int(port[1])))
    Publisher(bus.port).publish(TOPIC, shovelled(g_stream(2), "192.0.2.7:40000"))
    assert eventually(lambda: n_kept(tmp_path / "out") == 1)
    counts = collector.stop()
    assert (counts["datagrams"], counts["bus_gstream"], counts["bus_connected"]) == (1, 1, 0)
    summary = pulled(tmp_path / "tables", "xcache_gstream", tmp_path / "out")
    told_of_bus = pulled(tmp_path / "tables", "xcache_gstream", tmp_path / "out" / "bus" / "gstream")
    assert (summary["n_new"], told_of_bus["n_new"]) == (1, 1)
    figures = "".join(path.read_text() for path in (tmp_path / "m").glob("*.prom"))
    assert f'cachecast_collect_bus_gstream{{broker="stomp://127.0.0.1:{bus.port}"}} 1.0' in figures
    assert "cachecast_collect_datagrams" in figures


def certificates(folder: Path) -> None:
    """An authority, certificates of the broker (in a keystore too) and of a client, and another authority."""
    folder.mkdir()
    make = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={0} -keyout {0}.key -out {0}.pem"
    signed = f"{make} -CA ca.pem -CAkey ca.key -addext {{1}}"
    commands = [make.format(name) for name in ("ca", "stranger")]
    commands += [signed.format("host", "subjectAltName=IP:127.0.0.1")]
    commands += [signed.format("client", "basicConstraints=CA:FALSE")]
    commands += ["pkcs12 -export -in host.pem -inkey host.key -out host.p12 -name host -passout pass:tests"]
    lines = [f"openssl {command}" for command in commands]
    lines += ["keytool -importcert -alias ca -file ca.pem -keystore host.p12 -storepass tests -noprompt"]
    for line in lines:
        subprocess.run(line.split(), check=True, capture_output=True, cwd=folder)


def test_over_tls_with_certificates_on_both_sides(start: Callable[..., Collector], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    certificates(keys)
    for tls in needed("a real message broker", running(tmp_path / "broker", keys / "host.p12")):
        mine = {"CACHECAST_COLLECT__BROKER_CERT": str(keys / "client.pem")}
        mine["CACHECAST_COLLECT__BROKER_KEY"] = str(keys / "client.key")
        ours = {"CACHECAST_COLLECT__BROKER_CA_CERT": str(keys / "ca.pem")}
        strangers = {"CACHECAST_COLLECT__BROKER_CA_CERT": str(keys / "stranger.pem")}
        for env in (mine, ours, mine | strangers):
            a_while_without(start(f"stomp+ssl://127.0.0.1:{tls.port}", **env))
        a_while_with(start(f"stomp+ssl://127.0.0.1:{tls.port}", **mine, **ours), tls)


def a_while_without(collector: Collector) -> None:
    assert eventually(lambda: collector.says("does not take a subscription"))
    counts = collector.stop()
    assert counts["bus_connected"] == 0 and counts["bus_failures"] >= 1


def a_while_with(collector: Collector, broker: KeepingBroker) -> None:
    assert eventually(lambda: collector.says("subscribed to"))
    broker.kill()
    assert eventually(lambda: collector.says("it closed the connection"))
    broker.start()
    assert eventually(lambda: collector.log.count("subscribed to") == 2)
    collector.stop()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--broker", "stomp://u:secret@h:1", "--subscribe", "/topic/x"], "without a user"),
        (["--broker", "http://h:1", "--subscribe", "/topic/x"], "must be as stomp://"),
        (["--broker", "stomp://h:1"], "names nothing to follow"),
        (["--broker", "stomp://h:1", "--subscribe", "x"], "subscribe"),
        (["--broker", "stomp://h:1", "--subscribe", "/topic/x\ny:z"], "subscribe"),
        (["--broker", "stomp+ssl://h:1", "--subscribe", "/topic/x"], "ca.pem is not there"),
        (["--port", "0", "--broker", "stomp://h:1", "--subscribe", "/topic/x"], "cannot make folder"),
        ([], "nothing to collect"),
    ],
)
def test_what_cannot_be_followed_is_said_at_once(words: list[str], reason: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "bus").write_text("no folder")
    answer = cachecast("collect", "--out", out, *words, CACHECAST_COLLECT__BROKER_CA_CERT="/nowhere/ca.pem")
    assert answer.returncode == 1 and reason in answer.stderr.replace("\n", " ")
    assert "secret" not in answer.stderr and "Traceback" not in answer.stderr
