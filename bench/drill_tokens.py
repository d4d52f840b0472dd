"""A drill of tokens: a push and a steward that go on for longer than any of their tokens, at a real XCache.

bench/drill_tokens.py [--minutes M] [--token-minutes T]

An XCache with the SciTokens plugin believes a test issuer, over TLS. A push is throttled so that it takes
`--minutes`, while a steward evicts what exceeds the cache's high watermark. Both log in by a token of
`--token-minutes`, which is renewed as its last fifth begins; once, half way, the renewal comes so late that
the push stops at the expired token. It is run again (`push resume`), as a schedule would.

Exit code 1 unless every file was fetched exactly once, every token was used by both, the steward kept the
cache below its capacity, no copy is damaged, and no token stands in a log of ours.

Needs the environment that `make verify` makes: .venv/bin/python bench/drill_tokens.py
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support" / "servers")]

import token_issuer  # noqa: E402
from commands import COMMAND  # noqa: E402
from steward_site import MIB  # noqa: E402
from waiting import eventually  # noqa: E402

from jobs.local_site.local.process import free_ports  # noqa: E402
from jobs.local_site.local.xrootd import Loopback  # noqa: E402
from prefetch.actions import Action  # noqa: E402
from prefetch.journal.journal import Item, Journal  # noqa: E402
from prefetch.journal.tables import KNOWN  # noqa: E402

CAPACITY = 20 * MIB
WATERMARKS = (0.5, 0.8)
EVERY_S = 6.0
"""A file of 1 MiB in so many seconds, on average."""
LOOK_S, MOST_STOPS = 2.0, 50
_SUBJECT = re.compile(r"subject=(\w+)")


class Tokens:
    """Renews the token in `path`; each token has a subject of its own, `owner` and a number."""

    def __init__(self, path: Path, issuer: token_issuer.Issuer, owner: str, life_s: float) -> None:
        self.path, self.life_s, self.issued = path, life_s, list[str]()
        self._issuer, self._owner = issuer, owner
        self._stop, self._late = threading.Event(), threading.Event()
        self.renew()

    def renew(self) -> None:
        """Put a new token in the old one's place."""
        token = self._issuer.token(ends_in_s=int(self.life_s), sub=f"{self._owner}{len(self.issued)}")
        following = self.path.with_suffix(".next")
        following.touch(mode=0o600)
        following.write_text(token)
        following.replace(self.path)
        self.issued.append(token)

    def late_once(self) -> None:
        """Let the next renewal come when its token has expired for a third of its life."""
        self._late.set()

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the token in time while the block runs."""
        thread = threading.Thread(target=self._go_on)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _go_on(self) -> None:
        while not self._stop.wait(0.8 * self.life_s):
            if self._late.is_set():
                self._late.clear()
                self._stop.wait(0.53 * self.life_s)
            self.renew()


class Site:
    """The cache's configuration, a collector, a steward, and a journal with a plan of prefetches."""

    def __init__(self, folder: Path, servers: Loopback, url: str, n_files: int) -> None:
        self.folder, self.servers, self.url = folder, servers, url
        self.names = [f"/store/mc/f{i:05}.root" for i in range(n_files)]
        for i, name in enumerate(self.names):
            servers.add_file(name, content(i))
        self._running: list[subprocess.Popen[bytes]] = []
        self.journal = Journal(f"{folder}/journal.db")
        self.journal.make()
        now_s = int(time.time())
        self.journal.plans.record_plan(
            [_prefetch(name, rank, now_s) for rank, name in enumerate(self.names, 1)], now_s=now_s
        )

    def configure(self, owner: str) -> tuple[str, str]:
        """`--conf` of a process that logs in by `owner`'s token."""
        conf, folder = self.folder / f"conf-{owner}", self.folder
        (conf / "caches").mkdir(parents=True)
        (conf / "base.toml").write_text(
            f'[tables]\nroot = "{folder}/tables"\n[push]\njournal = "{folder}/journal.db"\nparallel = 2\n'
            f'timeout = "30s"\nbytes_per_s = "{MIB / EVERY_S / 1e3:.0f}kB"\n'
            f'[steward]\nstate = "{folder}/steward"\nlook = "2s"\npolicy = "lru"\n'
        )
        (conf / "caches" / "cache.toml").write_text(
            f'name = "cache"\nkind = "xcache"\nurl = "{self.url}"\ncapacity = "{CAPACITY}B"\n'
            f'watermarks = {list(WATERMARKS)}\nnamespace = "{self.servers.namespace}"\nsteward = true\n'
            f'gstream = "{folder}/captures"\nevict_guard = "0s"\n'
            f'token = "{folder}/{owner}.token"\naudience = "{token_issuer.AUDIENCE}"\n'
        )
        return "--conf", str(conf)

    def start(self, *words: str, until: str) -> None:
        """A command of ours that goes on; its log says `until` when it works."""
        log = self.folder / f"{words[0]}.log"
        with log.open("wb") as out:
            process = subprocess.Popen([*COMMAND, *words], stderr=out)
        self._running.append(process)
        if not eventually(lambda: until in log.read_text() or process.poll() is not None, 120):
            raise SystemExit(f"{words[0]} did not start:\n{log.read_text()}")

    def push(self, *conf: str) -> tuple[int, int, str]:
        """Push what is left: files fetched, their bytes, and why it stopped early or empty."""
        words = ["push", "resume", "--cache", "cache", "--json", *conf]
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
        with (self.folder / "push.log").open("a") as log:
            log.write(done.stdout + done.stderr)
        answer = json.loads(done.stdout or "{}")
        stopped = answer.get("stopped") or ("" if done.stdout else done.stderr.strip() or "killed")
        return answer.get("pushed", 0), answer.get("bytes_fetched", 0), stopped

    def held(self) -> list[Path]:
        """The copies in the cache."""
        return list(self.servers.namespace.rglob("*.root"))

    def users(self) -> set[str]:
        """Whose tokens the cache has let in, by its own log."""
        return set(_SUBJECT.findall(self.servers.cache.log.read_text(errors="replace")))

    def end(self) -> None:
        """End what was started here."""
        for process in self._running:
            process.terminate()
            process.wait(60)
        self.journal.close()


def content(number: int) -> bytes:
    """Of the file of that number."""
    return number.to_bytes(8, "big") * (MIB // 8)


def _prefetch(name: str, rank: int, now_s: int) -> Item:
    ends_s = now_s + 86400
    return Item(name, "cache", now_s, f"t:{name}", name, Action.PREFETCH, rank, MIB, MIB, ends_s, basis=KNOWN)


def main() -> int:
    """Run the drill; 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--token-minutes", type=float, default=10)
    options = parser.parse_args()
    (port,) = free_ports(1)
    with token_issuer.running(gstream_port=port) as (servers, issuer, url, trusted):
        os.environ["X509_CERT_DIR"] = str(trusted)
        with tempfile.TemporaryDirectory(prefix="tok-") as name:
            site = Site(Path(name), servers, url, int(options.minutes * 60 / EVERY_S))
            try:
                return drill(site, issuer, port, options.minutes * 60, options.token_minutes * 60)
            finally:
                site.end()


def drill(site: Site, issuer: token_issuer.Issuer, port: int, lasts_s: float, life_s: float) -> int:
    """Push for `lasts_s`; print what happened; 1 if it is not what is promised."""
    tokens = {
        owner: Tokens(site.folder / f"{owner}.token", issuer, owner, life_s)
        for owner in ("pusher", "steward")
    }
    conf = {owner: site.configure(owner) for owner in tokens}
    captures = ("--out", f"{site.folder}/captures")
    site.start("collect", "--port", str(port), *captures, *conf["steward"], until="listening")
    site.start("steward", "--cache", "cache", *conf["steward"], until="began")
    late = threading.Timer(lasts_s / 2, tokens["pusher"].late_once)
    late.start()
    with tokens["pusher"].renewed(), tokens["steward"].renewed(), largest(site) as sizes:
        pushed = push_all(site, conf["pusher"], life_s / 20)
        late.cancel()
        checks = [*of_pushes(site, pushed), *of_tokens(site, tokens), *of_cache(site, sizes)]
    for holds, what in checks:
        print(f"{'ok  ' if holds else 'FAIL'} {what}")
    return 0 if all(holds for holds, _ in checks) else 1


Check = tuple[bool, str]


class Pushed(NamedTuple):
    """Sums over all pushes, and why some stopped."""

    n_files: int
    n_bytes: int
    stops: tuple[str, ...]


def push_all(site: Site, conf: tuple[str, str], wait_s: float) -> Pushed:
    """Push until nothing is left, `wait_s` after each stop."""
    done, started = Pushed(0, 0, ()), time.monotonic()
    while len(done.stops) < MOST_STOPS:
        n_files, n_bytes, stopped = site.push(*conf)
        stops = (*done.stops, stopped) if stopped else done.stops
        done = Pushed(done.n_files + n_files, done.n_bytes + n_bytes, stops)
        progress = f"after {time.monotonic() - started:.0f} s: {done.n_files} of {len(site.names)} files"
        print(f"{progress}, stopped: {stopped}" if stopped else progress, flush=True)
        if not stopped:
            break
        time.sleep(wait_s)
    return done


@contextlib.contextmanager
def largest(site: Site) -> Iterator[list[int]]:
    """Bytes held, looked at every few seconds while the block runs."""
    sizes, ended = list[int](), threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            sizes.append(len(site.held()) * MIB)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def of_pushes(site: Site, pushed: Pushed) -> Iterator[Check]:
    """Every file once, and no other reason to stop than a token."""
    n_planned = len(site.names)
    n_left = site.journal.reports.planned("cache")
    whole = pushed.n_files == n_planned and pushed.n_bytes == n_planned * MIB and not n_left
    n_mib = pushed.n_bytes / MIB
    yield whole, f"{pushed.n_files} files, {n_mib:.0f} MiB fetched of {n_planned} planned; {n_left} left"
    by_token = bool(pushed.stops) and all("expire" in stop for stop in pushed.stops)
    yield by_token, f"stopped {len(pushed.stops)} times, each at an expired token"


def of_tokens(site: Site, tokens: dict[str, Tokens]) -> Iterator[Check]:
    """Each was used but perhaps the last, which may have come after the last file; none was written down."""
    used = site.users()
    for owner, of in tokens.items():
        expected = {f"{owner}{i}" for i in range(len(of.issued) - 1)}
        yield (
            expected <= used,
            f"{owner}: {len(expected & used)} of {len(expected)} tokens of {of.life_s:.0f} s used",
        )
    logs = "".join(path.read_text(errors="replace") for path in site.folder.glob("*.log"))
    parts = [part for of in tokens.values() for token in of.issued for part in token.split(".")[1:]]
    n_told = sum(part in logs for part in parts)
    yield not n_told, f"{n_told} tokens in the logs of push, steward and collector"


def of_cache(site: Site, sizes: list[int]) -> Iterator[Check]:
    """Kept by the steward, which logs in by its tokens, below the cache's capacity; all copies whole."""
    high = WATERMARKS[1] * CAPACITY
    is_below = eventually(lambda: len(site.held()) * MIB <= high, 60) and max(sizes) <= CAPACITY
    yield (
        is_below,
        f"at most {max(sizes) / MIB:.0f} MiB held of {CAPACITY / MIB:.0f}, at the end {len(site.held())}",
    )
    held = site.held()
    n_damaged = sum(path.read_bytes() != content(int(path.stem[1:])) for path in held)
    yield not n_damaged, f"{n_damaged} of {len(held)} copies damaged"


if __name__ == "__main__":
    sys.exit(main())
