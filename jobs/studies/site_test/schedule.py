"""What a test measures, in which order, and the bytes that it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from features.common.errors import InputError
from prefetch.xcache.reading import PART_BYTES, Piece

COLD, WARM = "cold", "warm"
"""Through the cache without the file, and with it; every other place is an origin, read directly."""
SHARES: Final = (0.05, 0.35, 1.0)
"""Of a file, as the analysis benchmarks of CERN's study read, and all of it."""
_JOB_THREADS = 16
"""Of the multi-threaded job with which settings of the client are compared; at most the most clients."""
LEAST_BYTES = 2**20
"""Of a file: less says nothing of a rate."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a test. `n_bytes`: read by clients, and fetched by the cache, together; `repeat`: rounds."""

    n_bytes: int
    seconds: int
    repeat: int = 3
    clients: tuple[int, ...] = (1, 4, 16, 64)
    loops: tuple[int, ...] = (1, 10)
    streams: tuple[int, ...] = (1, 4)
    files: int = 24

    def checked(self) -> Limits:
        """The same, with what is a list in rising order. Raises InputError."""
        lists = {"clients": (self.clients, 256), "loops": (self.loops, 64), "streams": (self.streams, 16)}
        for name, (values, most) in lists.items():
            if not values or min(values) < 1 or max(values) > most:
                raise InputError(f"--{name} must be whole numbers from 1 to {most}, for example 1,4")
        if self.seconds < 10 or self.n_bytes < 20 * LEAST_BYTES:
            raise InputError("--time must be at least 10s, and --bytes at least 21MB")
        rising = {name: tuple(sorted(set(values))) for name, (values, _) in lists.items()}
        return dataclasses.replace(self, **rising)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Kind:
    """One way of reading: `clients` at once, each the `share` of its bytes, with these client settings.

    `is_job`: all clients are threads of one process that share a connection, unless it `has_own`: then each
    has its own. Else they are spread over processes, and each has its own.
    """

    place: str
    share: float
    clients: int
    loops: int
    streams: int = 1
    is_job: bool = False
    has_own: bool = True

    @property
    def reading(self) -> str:
        """What is read, in words."""
        return "whole" if self.share >= 1 else f"{100 * self.share:g} %"


@dataclasses.dataclass(frozen=True)
class Span:
    """The first `n_bytes` of a file of `size_bytes`: what is read of it, at most."""

    name: str
    size_bytes: int
    n_bytes: int


def kinds(origins: Sequence[str], limits: Limits) -> list[Kind]:
    """Everything that is measured, in the order of the report."""
    places, loops, few = [*origins, COLD, WARM], limits.loops[-1], limits.clients[0]
    all_kinds = [Kind(place, share, few, loops) for place in places for share in SHARES]
    all_kinds += [Kind(place, 1.0, n, loops) for place in places for n in limits.clients[1:]]
    threads = min(_JOB_THREADS, limits.clients[-1])
    if threads > 1:
        jobs = [Kind("", 1.0, threads, loops, 1, True, False) for loops in limits.loops]
        jobs += [Kind("", 1.0, threads, loops, streams, True, False) for streams in limits.streams[1:]]
        # With one connection there is work for one event loop.
        jobs += [Kind("", 1.0, threads, loops, 1, True, True) for loops in limits.loops]
        all_kinds += [dataclasses.replace(job, place=place) for place in [WARM, *origins[:1]] for job in jobs]
    return all_kinds


def rounds(tested: Sequence[Kind], repeat: int) -> Iterator[tuple[int, Kind]]:
    """Each kind once per round, so that what changes meanwhile meets all kinds alike.

    In a round the cold reads come before the warm ones, and the last of them fetches all that those find.
    """
    cold = _cold(tested)
    warm = [kind for kind in tested if kind.place == WARM]
    direct = [kind for kind in tested if kind.place not in (COLD, WARM)]
    for number in range(repeat):
        turn = -1 if number % 2 else 1
        for kind in [*direct[::turn], *cold, *warm[::turn]]:
            yield number, kind


def groups(files: Sequence[Span], tested: Sequence[Kind]) -> dict[Kind, list[Span]]:
    """What each kind reads: as far as there are files, no cold read of a round has those of another.

    A cache may keep a file open for a while after it was read, and would not read it cold again. Direct reads
    have the files of the cold ones; warm ones, and jobs, those of the last cold one.
    """
    cold = _cold(tested)
    n_groups = min(len(cold), len(files))
    parts = [list(files[number % n_groups :: n_groups]) for number in range(len(cold))]
    alike = {(kind.share, kind.clients): part for kind, part in zip(cold, parts, strict=True)}
    return {
        kind: parts[-1] if kind.place == WARM or kind.is_job else alike[kind.share, kind.clients]
        for kind in tested
    }


def _cold(tested: Sequence[Kind]) -> list[Kind]:
    """The cold kinds in the order of a round."""
    return sorted(
        (kind for kind in tested if kind.place == COLD), key=lambda kind: (kind.share, kind.clients)
    )


def weight(tested: Sequence[Kind]) -> float:
    """Bytes that one round takes, in bytes that a kind reads of: a cold read is also fetched by the cache."""
    return sum(kind.share + (kind.place == COLD) for kind in tested)


def spans(files: Sequence[tuple[str, int]], total_bytes: int) -> list[Span]:
    """What is read of `files` (name, size) so that it is at most `total_bytes`. Raises InputError.

    The files that need less than their part leave it to the others.
    """
    parts, left = list[Span](), total_bytes
    rising = sorted(files, key=lambda file: file[1])
    for number, (name, size) in enumerate(rising):
        n_bytes = min(size, left // (len(rising) - number))
        parts.append(Span(name, size, n_bytes))
        left -= n_bytes
    if sum(span.n_bytes for span in parts) < LEAST_BYTES:
        raise InputError(
            "less than 1 MiB of files is left for a read: give more --bytes or --time, or larger files"
        )
    return [span for span in parts if span.n_bytes]


def pieces(files: Sequence[Span], kind: Kind) -> list[list[Piece]]:
    """What each client reads: together all spans once. More clients than files share them, part by part."""
    n_parts = -(-kind.clients // len(files))
    parts = list[Piece]()
    for part in range(n_parts):
        for span in files:
            edges = [_edge(span.n_bytes, number, n_parts) for number in (part, part + 1)]
            if edges[1] > edges[0]:
                parts.append(Piece(span.name, span.size_bytes, edges[0], edges[1] - edges[0], kind.share))
    return [some for number in range(kind.clients) if (some := parts[number :: kind.clients])]


def _edge(n_bytes: int, number: int, n_parts: int) -> int:
    """Where part `number` of `n_parts` begins, at a multiple of what sparse reads ask for."""
    return n_bytes if number == n_parts else n_bytes * number // n_parts // PART_BYTES * PART_BYTES
