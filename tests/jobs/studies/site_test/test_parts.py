"""The parts of a site test that need no server: what is read, what is chosen, what follows from rates."""

import contextlib
import dataclasses
import datetime as dt
import itertools
import os
import resource
import socket
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from access_rows import accesses

from features.common.errors import InputError, PushRejected, TargetUnavailable
from features.common.progress import unwatched
from features.schema import ACCESSES
from jobs.ground.settings.tree import CacheSettings, Settings
from jobs.ground.store.tables import Tables
from jobs.studies.site_test import answer, files, measure
from jobs.studies.site_test.answer import Rate
from jobs.studies.site_test.measure import Latency, Measuring, latency
from jobs.studies.site_test.run import SiteTest
from jobs.studies.site_test.schedule import (
    COLD,
    WARM,
    Kind,
    Limits,
    Server,
    Span,
    groups,
    kinds,
    pieces,
    rounds,
    spans,
    weight,
)
from jobs.studies.site_test.site_page import site_page
from prefetch.xcache.reading import PART_BYTES, Piece, PieceRead, asked_bytes, requests

MIB = 2**20
ORIGIN = "se.fnal.gov"


@pytest.mark.parametrize(("n_files", "n_clients"), [(f, c) for f in (1, 3, 8) for c in (1, 2, 7, 64)])
def test_clients_read_every_byte_once(n_files: int, n_clients: int) -> None:
    files_read = [Span(f"/f{k}", 9 * MIB, (5 + k) * MIB + k) for k in range(n_files)]
    some = pieces(files_read, Kind(WARM, 1.0, n_clients))
    assert len(some) <= n_clients and all(some)
    for span in files_read:
        read = sorted((p.first, p.first + p.n_bytes) for p in itertools.chain(*some) if p.name == span.name)
        assert (read[0][0], read[-1][1]) == (0, span.n_bytes)
        assert all(a[1] == b[0] for a, b in itertools.pairwise(read))


@pytest.mark.parametrize("share", [0.05, 0.35, 1.0])
def test_requests_ask_for_their_share_within_the_piece(share: float) -> None:
    piece = Piece("/f", 100 * MIB, 3 * PART_BYTES, 50 * MIB + 7, share)
    ranges = [span for some in requests(piece) for span in some]
    assert all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    assert ranges[0][0] == piece.first and sum(ranges[-1]) <= piece.first + piece.n_bytes
    assert asked_bytes(piece) == pytest.approx(share * piece.n_bytes, rel=0.01)


def test_what_is_planned_stays_within_the_bytes() -> None:
    planned = kinds([ORIGIN], Limits(10**9, 600))
    parts = spans([("/small", 2 * MIB), ("/a", 10**9), ("/b", 10**9)], int(10**9 / 3 / weight(planned)))
    assert parts[0].n_bytes == 2 * MIB and parts[1].n_bytes == pytest.approx(parts[2].n_bytes, rel=0.01)
    read = sum(span.n_bytes for span in parts)
    assert 0.99e9 < sum(read * (k.share + (k.place == COLD)) for k in rounds(planned, 3)) <= 1e9
    with pytest.raises(InputError, match="give more --bytes"):
        spans([("/a", 10**9)], MIB - 1)


def test_warm_reads_follow_a_cold_one_that_fetches_everything() -> None:
    plan = list(rounds(kinds([ORIGIN], Limits(10**9, 600)), 3))
    assert any(kind.place == WARM for kind in plan)
    for before, kind in itertools.pairwise(plan):
        if kind.place == WARM:
            assert before.place == WARM or (before.place, before.share) == (COLD, 1.0)


@pytest.mark.parametrize("n_files", [1, 4, 24])
def test_cold_reads_of_a_round_share_files_only_if_there_are_too_few(n_files: int) -> None:
    planned = kinds([ORIGIN], Limits(10**9, 600))
    read_by = groups([Span(f"/f{k}", MIB, MIB) for k in range(n_files)], planned)
    cold = {kind: {span.name for span in read_by[kind]} for kind in planned if kind.place == COLD}
    assert all(cold.values()) and len(set.union(*cold.values())) == n_files
    assert n_files < len(cold) or sum(map(len, cold.values())) == n_files
    *_, last = (kind for kind in rounds(planned, 1) if kind.place == COLD)
    assert all(read_by[kind] == read_by[last] for kind in planned if kind.place == WARM)
    assert all(read_by[kind] for kind in planned)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/store/a\nb.root", "/store/../x", "/xrdpfc_command/x"])
def test_names_are_checked(name: str) -> None:
    with pytest.raises(PushRejected, match="not a usable file name"):
        files.named(["/store/good.root", name])


def test_recorded_files_are_of_this_cache_and_those_not_read_for_longest_come_first(tables: Tables) -> None:
    cache = CacheSettings(name="xc", kind="xcache", url="root://xc:1094", capacity=10**12)
    with pytest.raises(InputError, match="name some by --file"):
        files.recorded(tables, cache, at_s=2**31)
    reads = [("xc", "/store/new"), ("xc", "/store/old"), ("other", "/store/b"), ("xc", "mc:no.path")]
    reads += [("xc", "/store/../x"), ("xc", "/store/new")]
    at = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    rows = [
        {"name": name, "cache": cache, "accessed_at": at - dt.timedelta(hours=k % 5)}
        for k, (cache, name) in enumerate(reads)
    ]
    tables.replace_arrow(ACCESSES, accesses(rows, known_at=at))
    assert files.recorded(tables, cache, at_s=2**31) == ["/store/old", "/store/new"]


def test_a_server_that_accepts_and_never_answers_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(TargetUnavailable, match=r"the cache at root://127\.0\.0\.1:\d+ does not answer"):
            latency("the cache", Server(f"root://127.0.0.1:{silent.getsockname()[1]}", {}))
        assert time.monotonic() - began < 30


def test_a_server_that_floods_the_client_fills_no_memory() -> None:
    """It announces 2 GiB as the answer to a question, and sends them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    announced = b"\0\0\0\0" + (2**31 - 16).to_bytes(4)
    handshake = bytes(7) + b"\x08\0\0\x05\0\0\0\0\1"

    def flood(door: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = door.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(4096)
                    client.sendall(handshake + announced)
                    while True:
                        client.sendall(bytes(2**20))

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=flood, args=(door,), daemon=True).start()
        url = f"root://127.0.0.1:{door.getsockname()[1]}"
        with pytest.raises(TargetUnavailable, match=r"origin at .* the client ran out of memory"):
            latency("origin", Server(url, dict(os.environ)))
    assert max(before, 600_000) >= resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


class Forgetful:
    """What a cache fetched of a test's files: it has dropped them `n_times`."""

    def __init__(self, n_times: int) -> None:
        self._n_left = n_times

    def claim(self, names: list[str]) -> None:
        pass

    def remove(self, names: list[str]) -> list[str]:
        return []

    def lost(self, names: list[str]) -> list[str]:
        self._n_left -= 1
        return names if self._n_left >= 0 else []


def all_read(_server: Server, _kind: str, jobs: list[dict[str, Any]], **_: float) -> list[dict[str, Any]]:
    pieces = [Piece(**fields) for (some,) in [job["clients"] for job in jobs] for fields in some]
    reads = [dataclasses.asdict(PieceRead(piece, asked_bytes(piece))) for piece in pieces]
    return [{"began": 0.0, "ended": 1.0, "cpu_s": 0.5, "clients": [reads]}]


def silent(*_: Any, **__: float) -> None:
    raise TargetUnavailable("no answer within 15 s")


@pytest.mark.parametrize(
    ("answers", "limit_bytes", "taken_bytes", "error"),
    [
        (all_read, 99 * MIB, 16 * MIB, None),  # read again
        (all_read, 10 * MIB, 8 * MIB, "the cache has dropped /f meanwhile"),
        (silent, 99 * MIB, 8 * MIB, "no answer within 15 s"),
    ],
)
def test_the_bytes_of_reads_count_that_are_repeated_or_never_answered(
    monkeypatch: pytest.MonkeyPatch, answers: Any, limit_bytes: int, taken_bytes: int, error: str | None
) -> None:
    for name, value in (("_DETACH_S", 0.01), ("_SETTLE_S", 0.0), ("ask_at_once", answers)):
        monkeypatch.setattr(measure, name, value)
    dropping: Any = Forgetful(1)
    measuring = Measuring({COLD: Server("root://xc", {})}, dropping, Limits(limit_bytes, 600))
    run = measuring._run(Kind(COLD, 1.0, 1), [Span("/f", 9 * MIB, 4 * MIB)])
    assert (run.error, measuring._bytes) == (error, taken_bytes)
    if error is None:
        hurried = Measuring({COLD: Server("root://xc", {})}, dropping, Limits(limit_bytes, 0))
        with pytest.raises(InputError, match="the time ended with one read"):
            hurried.run([("/f", 9 * MIB)], unwatched)


def rate(place: str, mb: float | None, *, reading: str = "whole", clients: int = 1, **more: Any) -> Rate:
    value = None if mb is None else round(mb * 1e6)
    facts: dict[str, Any] = {"open_ms": 1.0, "runs": 3, "failed": 0, "why": None, "is_busy": False}
    facts |= {f"{figure}_bytes_per_s": value for figure in ("rate", "lowest", "highest")}
    return Rate(place, reading, clients, **facts | more)


ROWS = [
    *(rate(place, mb, reading="35 %") for place, mb in ((ORIGIN, 4.8), (COLD, 2.4), (WARM, 240))),
    *(rate(place, mb) for place, mb in ((ORIGIN, 50), (COLD, 40), (WARM, 300))),
    *(rate(COLD, 150, clients=4), rate(COLD, 160, clients=16)),
]
TRIPS = [Latency(ORIGIN, 142.0, 140.0, 150.0, 500.0), Latency("the cache", 0.5, 0.4, 0.6, 3.0)]


def test_settings_can_be_pasted_and_mean_what_was_measured(tmp_path: Path) -> None:
    before = Settings.load(None, env={})
    text = answer.toml(
        before, {ORIGIN: f"root://{ORIGIN}:1094"}, TRIPS, ROWS, largest_bytes=4 * 10**9, what="a test"
    )
    (tmp_path / "site.toml").write_text(text)
    after = Settings.load(tmp_path / "site.toml", env={})
    assert after.regions["america"].hosts == before.regions["america"].hosts
    assert after.regions["america"].rtt_ms == 142 and after.regions["spain"] == before.regions["spain"]
    assert after.benefit.cache_rtt_ms == 0.5
    # Computing takes as long as reading from the cache at 2.4 MB/s, and twice as long as at 4.8 MB/s.
    assert after.benefit.miss_slowdown == pytest.approx(2 / 1.5 - 1, abs=1e-3)
    assert (after.push.parallel, after.push.bytes_per_s) == (4, 80_000_000)
    assert after.push.timeout == 240, "twice 4 GB at a quarter of 150 MB/s, in steps of 30 s"
    assert set(tomllib.loads(text)) == {"regions", "benefit", "push"}


def test_the_page_escapes_what_servers_say() -> None:
    bad = rate(WARM, None, clients=4, failed=3, why="<script>alert(1)</script>")
    rows = (*ROWS, bad)
    facts: dict[str, Any] = {"cache": "xc1", "version": "5.5.3", "measured_at": "2026-03-01T00:00:00Z"}
    facts |= {"files": ("/f",), "read_bytes": MIB, "bytes_used": MIB, "seconds": 9.0, "rates": rows}
    facts |= {"settings": "[push]\nparallel = 4  # few", "round_trips": tuple(TRIPS)}
    facts |= {"findings": tuple(answer.findings(TRIPS, rows)), "advice": " ".join(answer.advice(rows))}
    facts |= dict.fromkeys(("failures", "notes"), ())
    page = site_page(SiteTest(**facts))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert page.count("<svg") > 2
