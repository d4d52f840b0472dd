"""A real placement service on this machine: `cachecast serve` as a process, or in a thread with a clock."""

import dataclasses
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certificates
import httpx
import numpy as np
from commands import COMMAND
from daemons import PATIENCE_S, answers, wait
from waiting import eventually

from jobs.ground.settings.tree import Settings
from jobs.operator.placement.serve import server as built
from prefetch.placement.database import PlacementTables
from prefetch.placement.pages import PageMaker
from prefetch.placement.snapshot import NOBODY, NOWHERE, CacheHolding, dump, snapshot_of
from replay.ranges import keys_of

OPERATOR = "operators-token-of-the-tests"
CACHES = {**dict.fromkeys(("a", "b", "c", "d", "xc1", "xc2", "xc3"), ("EDGE", 100)), "xf1": ("FAR", 300)}
"""Site and capacity of the caches that the service's configuration names."""
ROOT = Path(__file__).parents[3]

GB = 10**9
PLACED_AT = "2026-03-01T00:00:00Z"
PLACED = {
    "cms:/P/E/AOD": [0],
    "cms:/P/E/HOT": [1, 0],
    "atlas:data24.nobody": [NOWHERE],
    "cms:/P/E/GONE": [2],
    "panda:panda.um.known": [0],
}

NO_PAGES: Any = SimpleNamespace(caches=(), style=b"", page=lambda *_: b"", close=lambda: None)
NOTHING_MORE: Mapping[str, str] = {}
NOT_PLANNED: Mapping[str, Mapping[str, int]] = {}


def refresh(database: Path | str, capacities: Mapping[str, Mapping[str, int]] = NOT_PLANNED) -> None:
    """Store five datasets and a file, as `cachecast place` would: EDGE holds 0.8 of the file.

    `capacities`: of planned caches by site and name; of other sites heartbeats alone count.
    """
    rows = [sites + [NOBODY] * (5 - len(sites)) for sites in PLACED.values()]
    snapshot = snapshot_of(
        as_of=PLACED_AT,
        sites=["EDGE", "FAR", "DEAD"],
        caches=[("xc1", "EDGE"), ("xf1", "FAR")],
        capacities=capacities,
        datasets=keys_of(PLACED),
        placed=np.array(rows, np.uint8),
        items=["cms:/f", "cms:/P/E/AOD"],
        size_bytes=np.array([1000.0 * GB, 2000.0 * GB]),
        holdings=[
            CacheHolding(np.arange(2), np.full(2, 800.0 * GB), np.full(2, 900.0 * GB)),
            CacheHolding(np.empty(0, np.int64), np.empty(0), np.empty(0)),
        ],
    )
    with closing(PlacementTables(str(database))) as opened:
        opened.refresh(dump(snapshot), snapshot.as_of)


@dataclasses.dataclass(frozen=True)
class PlacementServer:
    """A running service."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    log: Path = Path(os.devnull)

    def client(self, token: str | None = OPERATOR) -> httpx.Client:
        """A client that shows `token`."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        # To load the authorities that it would believe takes a client 44 ms of computing.
        return httpx.Client(base_url=self.url, headers=headers, timeout=90, verify=False)

    def get(self, path: str) -> httpx.Response:
        """What a client without a token gets, by a connection of its own."""
        with self.client(None) as client:
            return client.get(path)

    def beat(self, id: str) -> None:
        """One cache's heartbeat."""
        with self.client(token_of(id)) as client:
            client.post("/liveness", json={"id": id}).raise_for_status()


def token_of(cache: str) -> str:
    """The token of a cache."""
    return f"token-of-{cache}-in-the-tests"


def configured(conf: Path, caches: Mapping[str, tuple[str, int]] = CACHES) -> dict[str, str]:
    """Write `conf`/caches and a token for each; the keys of [serve] that name the tokens."""
    folders = [conf / "caches", conf / "tokens"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, (site, capacity) in caches.items():
        words = {"name": name, "kind": "xcache", "url": f"root://{name}:1094", "site": site}
        lines = [f'{key} = "{value}"' for key, value in words.items()]
        (conf / "caches" / f"{name}.toml").write_text("\n".join([*lines, f"capacity = {capacity}"]))
        (conf / "tokens" / name).touch(mode=0o600)
        (conf / "tokens" / name).write_text(token_of(name))
    return {"cache_tokens": str(folders[1])}


@contextmanager
def serving(
    database: Path | str,
    *,
    caches: Mapping[str, tuple[str, int]] = CACHES,
    env: Mapping[str, str] = NOTHING_MORE,
    **more: str,
) -> Iterator[PlacementServer]:
    """The command itself, ended by SIGTERM with the block; `more` are settings of [serve], `env` others."""
    with tempfile.TemporaryDirectory() as folder:
        named = {"database": str(database), "token": OPERATOR} | configured(Path(folder), caches) | more
        variables = {f"CACHECAST_SERVE__{key.upper()}": value for key, value in named.items()} | dict(env)
        log = Path(folder, "serve.log")
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*COMMAND, "serve", "--port", "0", "--conf", folder],
                env={"PATH": os.environ["PATH"], "HOME": str(Path.home())} | variables,
                cwd=ROOT,
                stderr=stderr,
            )
        try:
            wait(lambda: "\n" in log.read_text(), log.parent, process)
            address = re.search(r"(https?://[^ ,]+)", log.read_text())
            assert address, log.read_text()
            url = address[1]
            assert eventually(lambda: answers(f"{url}/health"), PATIENCE_S)
            yield PlacementServer(url, process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=90)


@contextmanager
def threaded(
    database: Path,
    now_s: Callable[[], float],
    *,
    caches: Mapping[str, tuple[str, int]] = CACHES,
    operator: PageMaker = NO_PAGES,
    **more: object,
) -> Iterator[PlacementServer]:
    """The application in uvicorn, over real HTTP, but with a clock of the test's."""
    conf = database.parent / "conf"
    options = configured(conf, caches)
    settings = Settings.load(conf, env={"CACHECAST_SERVE__TOKEN": OPERATOR})
    serve = settings.serve.model_copy(update={"database": str(database), "sync": 1} | options | more)
    server = built(serve, settings.caches.values(), operator, job_read_rate_bytes_s=2.4e6, now_s=now_s)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        scheme = "https" if "tls_cert" in more else "http"
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        assert eventually(lambda: answers(f"{url}/health"), PATIENCE_S)
        yield PlacementServer(url)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def certificate(folder: Path) -> dict[str, Any]:
    """The keys of [serve] that name a certificate of localhost, which signs itself."""
    pem = str(certificates.certificate(folder))
    return {"tls_cert": pem, "tls_key": pem}


def loaded(get: Callable[[str], httpx.Response], path: str) -> httpx.Response:
    """The answer to `path`, asked again while there is no page: its process loads long on a busy machine."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := get(path)).status_code == 503 and time.monotonic() < deadline:
        time.sleep(1.0)
    return answer
