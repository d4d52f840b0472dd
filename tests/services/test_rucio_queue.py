"""What a real Rucio server says of its rules, and writes for its broker, which is a real one, as a queue."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import requests
import stomp
from commands import COMMAND
from daemons import wait
from rucio_server import RucioServer
from stomp_broker import KeepingBroker

from features.common.errors import ServiceError
from features.schema import QUEUE
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import queue

pytestmark = pytest.mark.service
TOPIC = "/topic/rucio.events"
SCOPE, FAR, EDGE = "queue26", "QFAR_DISK", "QEDGE_DISK"
FILES = [f"f{n}.root" for n in range(3)]


def settings(rucio: RucioServer, folder: Path, **other: str) -> Settings:
    login = {"URL": rucio.url, "USERNAME": "ddmlab", "PASSWORD": "secret", "ACCOUNT": "root", **other}
    env = {f"CACHECAST_RUCIO__{name}": value for name, value in login.items()}
    env |= {
        "CACHECAST_QUEUE__SITES": '{ EDGE = ["QEDGE*"] }',
        "CACHECAST_TABLES__ROOT": str(folder / "tables"),
    }
    return Settings.load(env=env)


def queued(settings: Settings, source: object, *, as_of_s: int) -> set[tuple[Any, ...]]:
    queue.run(settings, name="rucio", source=str(source), as_of_s=as_of_s)
    (*_, newest) = Tables.of(settings).snapshot(QUEUE).select()
    rows = Tables.of(settings).read_arrow(QUEUE).to_pylist()
    stated = [row for row in rows if row["as_of"] == newest[1]]
    return {(row["work"], row["input"], row["is_dataset"], row["site"]) for row in stated}


def sent(rucio: RucioServer) -> list[bytes]:
    """What Hermes would publish: the server's table of messages, in the form in which Hermes writes them."""
    columns = "event_type, payload, payload_nolimit, created_at"
    with sqlite3.connect(rucio.folder / "rucio.db") as database:
        rows = database.execute(f"SELECT {columns} FROM messages").fetchall()
    bodies = [
        {
            "event_type": kind.lower(),
            "payload": json.loads(long if short == "nolimit" else short),
            "created_at": at,
        }
        for kind, short, long, at in rows
    ]
    return [json.dumps(body).encode() for body in bodies]


def collected(folder: Path, port: int, bodies: list[bytes]) -> Path:
    """Where `cachecast collect` keeps what of `bodies`, published at the broker, Rucio moves."""
    out, said = folder / "out", folder / "collect.log"
    line = [*COMMAND, "collect", "--out", str(out), "--broker", f"stomp://127.0.0.1:{port}"]
    line += ["--subscribe", TOPIC, "--log-every", "1s"]
    with said.open("w") as log:
        process = subprocess.Popen(line, stderr=log)
    try:
        wait(lambda: "subscribed to" in said.read_text(), folder, process)
        connection = stomp.Connection12([("127.0.0.1", port)])
        connection.connect("u", "p", wait=True)
        for body in bodies:
            connection.send(TOPIC, body.decode(), headers={"persistent": "true"})
        wait(lambda: f"messages {len(bodies)}," in said.read_text(), folder, process)
        connection.disconnect()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return out / "bus/rucio"


def test_the_server_s_rules_and_messages_are_a_queue(
    rucio: RucioServer, bus: KeepingBroker, tmp_path: Path
) -> None:
    admin = rucio.admin()
    admin.add_scope("root", SCOPE)
    for rse in (FAR, EDGE):
        admin.add_rse(rse)
        admin.set_local_account_limit("root", rse, -1)
    admin.add_rse_attribute(EDGE, "queue_tier", "2")
    replicas = [{"scope": SCOPE, "name": name, "bytes": 5, "adler32": "0a1b2c3d"} for name in FILES]
    admin.add_replicas(FAR, replicas)
    files = [{"scope": SCOPE, "name": name} for name in FILES]
    for dataset, content in (("listed", files[:2]), ("meant", files[2:])):
        admin.add_dataset(SCOPE, dataset)
        admin.attach_dids(SCOPE, dataset, content)
    one = admin.add_replication_rule([{"scope": SCOPE, "name": "listed"}], 1, EDGE)[0]
    two = admin.add_replication_rule([{"scope": SCOPE, "name": "meant"}], 1, "queue_tier=2")[0]
    rules = [{"rse_expression": EDGE, "copies": 1, "activity": "User Subscriptions", "lifetime": None}]
    admin.add_subscription(
        "edge", "root", {"scope": [SCOPE], "pattern": "new.*"}, rules, "", None, False, False
    )
    admin.add_dataset(SCOPE, "new.one")
    now_s = int(time.time()) + 60
    here = settings(rucio, tmp_path)

    by_server = queued(here, "rucio_server", as_of_s=now_s)
    named = ((one, "listed"), (two, "meant"))
    wanted = {(f"rule:{rule}", f"{SCOPE}:{name}", True, "EDGE") for rule, name in named}
    assert by_server == wanted

    folder = collected(tmp_path, bus.port, sent(rucio))
    token = {"X-Rucio-Auth-Token": admin.auth_token}
    (folder / "subscriptions.json").write_bytes(
        requests.get(f"{rucio.url}/subscriptions/", headers=token, timeout=30).content
    )
    by_message = queued(here, folder, as_of_s=now_s + 1)
    moved = {(f"rule:{one}", f"{SCOPE}:{name}", False, "EDGE") for name in FILES[:2]}
    moved |= {(f"rule:{two}", f"{SCOPE}:{FILES[2]}", False, "EDGE")}
    new = {("subscription:root:edge", f"{SCOPE}:new.one", True, "EDGE")}
    assert by_message == moved | new

    away = settings(rucio, tmp_path, URL="http://127.0.0.1:1", ATTEMPTS="1")
    with pytest.raises(ServiceError, match="does not answer"):
        queued(away, "rucio_server", as_of_s=now_s + 2)
    known = queue.known_work(Tables.of(here), as_of_s=now_s + 3, cache="xc1", site="EDGE")
    assert known.n_unknown == len(by_message)
    later_s = now_s + 9 * 86400
    assert queued(here, "rucio_server", as_of_s=later_s) == set()
    for file in folder.glob("rucio-*.jsonl"):
        os.utime(file, (now_s - 9 * 86400,) * 2)
    queue.run(here, name="rucio", source=str(folder), as_of_s=now_s + 4)
    assert [file.name for file in folder.iterdir()] == ["subscriptions.json"]
