"""The measurements: each kind in each round, within bytes and time, and what was wrong with them."""

import collections
import dataclasses
import itertools
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from features.common.errors import InputError, PushRejected, TargetUnavailable
from features.common.progress import Advance
from jobs.studies.site_test.files import Fetched
from jobs.studies.site_test.schedule import (
    COLD,
    LEAST_BYTES,
    WARM,
    Kind,
    Limits,
    Server,
    Span,
    ask,
    ask_at_once,
    groups,
    kinds,
    pieces,
    rounds,
    spans,
    weight,
)
from prefetch.xcache.reading import Piece, PieceRead, asked_bytes, plain

_PING_TIMEOUT_S = 12.0
_TRIAL_BYTES = 4 * 2**20
_LEAST_TIMEOUT_S, _TIMES = 15.0, 20  # a run may take so many times the trial's time, and at least so long
_GIVEN_UP_AFTER = 2  # failed runs in a row: the place is left alone; a way of reading after one
_SAFE: Final = 0.7  # part of the time that is planned with, by the trial
_START_S = 1.0  # for the processes of a run, and evictions
_SETTLE_S = 0.2
_DETACH_S = 35.0  # a cache that reads ahead keeps a file open for half a minute after it was closed


@dataclasses.dataclass(frozen=True)
class Latency:
    """Round trips to a server: median, and the shortest and longest, in ms; `connect_ms`: with login."""

    place: str
    round_trip_ms: float
    shortest_ms: float
    longest_ms: float
    connect_ms: float


@dataclasses.dataclass(frozen=True)
class Run:
    """One measurement of a kind; `seconds` from the first request to the last answer, without opening files.

    `cpu_share`: CPU time of the reading processes per wall time of theirs. `error`: the first, None: it went
    well.
    """

    kind: Kind
    seconds: float
    bytes: int
    cpu_share: float
    reads: tuple[PieceRead, ...]
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Measured:
    """All runs, those that were left out for want of bytes or time, and the places left alone, with why."""

    spans: tuple[Span, ...]
    runs: tuple[Run, ...]
    n_planned: int
    bytes_used: int
    seconds_used: float
    stopped: str | None
    given_up: Mapping[str, str]


def latency(place: str, server: Server) -> Latency:
    """Ask a server some times. Raises TargetUnavailable, in one line, if it does not answer."""
    silent = f"{place} at {server.url} does not answer; is it an XRootD server, and does it know us?"
    try:
        answer = ask(server, "ping", timeout_s=_PING_TIMEOUT_S)
    except TargetUnavailable as error:
        raise TargetUnavailable(f"{silent} ({error})") from None
    if not answer["round_trips_s"]:
        raise TargetUnavailable(silent)
    ms = [1000 * seconds for seconds in answer["round_trips_s"]]
    return Latency(place, statistics.median(ms), min(ms), max(ms), 1000 * answer["connect_s"])


class Measuring:
    """A test of `servers` by place (origins first, then the cache as COLD and WARM), within `limits`."""

    def __init__(self, servers: Mapping[str, Server], fetched: Fetched, limits: Limits) -> None:
        self._servers, self._fetched, self._limits = servers, fetched, limits
        self._origins = [place for place in servers if place not in (COLD, WARM)]
        self._began, self._bytes = time.monotonic(), 0
        self._digests = dict[Piece, tuple[int, str]]()
        self._trial_s = dict[str, float]()
        self._read_s, self._rest_s = dict[str, float](), 0.0
        self._failed = collections.Counter[str]()
        self._given_up, self._never_again = dict[str, str](), set[Kind]()

    def run(self, files: Sequence[tuple[str, int]], on_progress: Advance) -> Measured:
        """Measure all kinds.

        Raises PushRejected for wrong bytes, PushError if even the trial fails, InputError if it takes all.
        """
        tested = kinds(self._origins, self._limits)
        files_read = self._sized(files, tested)
        read_by = groups(files_read, tested)
        plan = list(rounds(tested, self._limits.repeat))
        runs, stopped, holds = list[Run](), None, False
        for done, kind in enumerate(plan):
            stopped = self._out_of(kind, read_by[kind])
            if stopped is not None:
                break
            on_progress(done, len(plan), f"{kind.place}, {kind.reading}, clients: {kind.clients}")
            is_left = kind.place in self._given_up or kind in self._never_again
            if is_left or (kind.place == WARM and not holds):
                continue
            runs.append(self._run(kind, read_by[kind]))
            if kind.place == COLD:
                holds = runs[-1].error is None
        if not runs:
            raise InputError(f"{stopped} ended with one read from each place; give more --time or --bytes")
        return Measured(
            spans=tuple(files_read),
            runs=tuple(runs),
            n_planned=len(plan),
            bytes_used=self._bytes,
            seconds_used=time.monotonic() - self._began,
            stopped=stopped,
            given_up=dict(self._given_up),
        )

    def _sized(self, files: Sequence[tuple[str, int]], tested: Sequence[Kind]) -> list[Span]:
        """What is read of the files, by the bytes and the time there are, after a trial of each place."""
        name, size = files[0]
        trial = Span(name, size, min(size, _TRIAL_BYTES, self._limits.n_bytes // 20))
        slowest, other_s = math.inf, 0.0
        for place in [*self._origins, COLD]:
            run = self._run(Kind(place, 1.0, 1), [trial])
            if run.error is not None:
                raise TargetUnavailable(f"no file can be read from {place}: {run.error}")
            self._trial_s[place] = run.reads[0].seconds / run.bytes
            slowest = min(slowest, run.bytes / run.seconds)
            other_s = max(other_s, run.reads[0].seconds - run.reads[0].read_s)
        n_groups = min(len(files), sum(kind.place == COLD for kind in tested))
        opens = sum(-(-len(files) // (n_groups * kind.clients)) for kind in tested)
        reading_s = _SAFE * self._left_s() - self._limits.repeat * (opens * other_s + len(tested) * _START_S)
        by_time = max(len(files) * LEAST_BYTES, slowest * reading_s / (weight(tested) * self._limits.repeat))
        by_bytes = (self._limits.n_bytes - self._bytes) / (weight(tested) * self._limits.repeat)
        return spans(files, int(n_groups * min(by_bytes, by_time)))

    def _left_s(self) -> float:
        return self._began + self._limits.seconds - time.monotonic()

    def _out_of(self, kind: Kind, files: Sequence[Span]) -> str | None:
        """What there is too little of for another run, in words; None: there is enough."""
        if self._left_s() < 1:
            return "the time"
        needed = weight([kind]) * sum(span.n_bytes for span in files)
        return "the bytes" if self._bytes + needed > 1.05 * self._limits.n_bytes else None

    def _run(self, kind: Kind, files: Sequence[Span]) -> Run:
        """Measure once. Raises PushRejected if the bytes differ from those read before."""
        most = max(_LEAST_TIMEOUT_S, min(self._limits.seconds / 10, self._left_s()))
        byte_s = self._trial_s.get(COLD if kind.place == WARM else kind.place, math.inf)
        n_bytes = kind.share * sum(span.n_bytes for span in files)
        timeout_s = min(most, max(_LEAST_TIMEOUT_S, _TIMES * byte_s * n_bytes))
        try:
            if kind.place == COLD:
                self._make_cold(files)
            run = self._read(kind, files, timeout_s)
            names = [span.name for span in files]
            self._read_s |= dict.fromkeys(names, time.monotonic())
            if kind.place in (COLD, WARM) and (lost := self._fetched.lost(names)):
                run = dataclasses.replace(run, error=f"the cache has dropped {lost[0]} meanwhile")
                if kind.place == COLD and not self._rest_s and self._out_of(kind, files) is None:
                    # It was still open from the read before, and what came was that file's, which is no more.
                    self._rest_s = _DETACH_S
                    return self._run(kind, files)
        except TargetUnavailable as error:
            run = Run(kind, timeout_s, 0, 0.0, (), plain(str(error)))
        self._count(run)
        return run

    def _make_cold(self, files: Sequence[Span]) -> None:
        names = [span.name for span in files]
        last_s = max((self._read_s.get(name, -math.inf) for name in names), default=-math.inf)
        time.sleep(max(0.0, min(last_s + self._rest_s - time.monotonic(), self._left_s())))
        self._fetched.claim(names)
        if open_files := self._fetched.remove(names):
            raise TargetUnavailable(
                f"the cache keeps {open_files[0]} as open, so that it cannot be read cold"
            )
        time.sleep(_SETTLE_S)

    def _read(self, kind: Kind, files: Sequence[Span], timeout_s: float) -> Run:
        clients = pieces(files, kind)
        n_processes = min(len(clients), len(os.sched_getaffinity(0)))
        jobs = [
            {"clients": [[dataclasses.asdict(read) for read in some] for some in clients[k::n_processes]]}
            for k in range(n_processes)
        ]
        span_bytes = sum(span.n_bytes for span in files)
        asked = int(kind.share * span_bytes)
        # All that may come, until an answer says what did; and what the cache fetches.
        self._bytes += asked + (span_bytes if kind.place == COLD else 0)
        answers = ask_at_once(self._servers[kind.place], "read", jobs, timeout_s=timeout_s)
        by_client = [[_read(read) for read in some] for answer in answers for some in answer["clients"]]
        reads = tuple(itertools.chain(*by_client))
        wall_s = max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers)
        cpu_share = sum(answer["cpu_s"] for answer in answers) / (wall_s * n_processes)
        errors = [read.error for read in reads if read.error is not None]
        n_bytes = sum(read.bytes for read in reads)
        self._bytes += n_bytes - asked
        # Without what the clients needed, on average, to open and close files: a job reads a file for longer
        # than a test does, so that this would count for too much.
        others_s = [sum(read.seconds - read.read_s for read in some) for some in by_client]
        longest_s = max((sum(read.read_s for read in some) for some in by_client), default=0.0)
        seconds = max(wall_s - sum(others_s) / max(1, len(others_s)), longest_s, 1e-6)
        return Run(kind, seconds, n_bytes, cpu_share, reads, errors[0] if errors else None)

    def _count(self, run: Run) -> None:
        """Note failures, and digests."""
        place = run.kind.place
        for read in run.reads:
            if read.error is None:
                self._compare(read, place)
        if run.error is None:
            self._failed[place] = 0
            return
        self._never_again.add(run.kind)
        self._failed[place] += 1
        if self._failed[place] >= _GIVEN_UP_AFTER:
            self._given_up[place] = run.error

    def _compare(self, read: PieceRead, place: str) -> None:
        """Raise PushRejected if a piece has other bytes than another place, or the same, gave before."""
        if read.bytes != asked_bytes(read.piece):
            raise PushRejected(
                f"{place} gave {read.bytes} bytes of {read.piece.name}, {asked_bytes(read.piece)} were "
                "asked for"
            )
        digest, first = self._digests.setdefault(read.piece, (read.digest, place))
        if digest != read.digest:
            raise PushRejected(
                f"{place} gives other bytes of {read.piece.name} than {first} did before (adler32 "
                f"{read.digest:08x} and {digest:08x}, {read.piece.n_bytes} bytes from {read.piece.first}): "
                "one of them is damaged, or the file changes"
            )


def _read(fields: Mapping[str, Any]) -> PieceRead:
    return PieceRead(**{**fields, "piece": Piece(**fields["piece"])})
