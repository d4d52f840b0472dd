"""LRU at every capacity: points of the curve, the bound at some of them, and sentences for planners."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from features.common.errors import InputError
from features.common.progress import Advance
from features.common.units import format_bytes
from features.results import LRU
from jobs.ground.settings.tree import Settings
from jobs.ground.text import CURVE_COLUMNS, as_row, percent, select
from jobs.loop.traces import sizes
from jobs.pages.write import BOUND_NOTE, Page, write_page
from jobs.studies.simulate.accesses import Accesses
from replay.comparison import BOUND, Candidates, compare
from replay.curve import Curve, lru_curve
from replay.result import Result
from replay.trace import Trace

N_POINTS = 20  # capacities shown, evenly spaced on a log scale from LEAST_FRACTION to all bytes read
LEAST_FRACTION = 0.001
N_IDEAL = 5  # capacities at which clairvoyant and bound are shown too
_Key = tuple[str, int]
_IDEAL = ("clairvoyant", BOUND)


@dataclasses.dataclass(frozen=True)
class Point:
    """LRU at one capacity.

    `doubling_adds_…`: what twice the capacity adds. `replayed`: the capacity is below the largest file's
    size, so that LRU itself was replayed. The last two fields are given at a few points only.
    """

    capacity_bytes: int
    capacity_fraction: float
    hit_ratio: float
    byte_hit_ratio: float
    wan_bytes: int
    doubling_adds_hit_ratio: float
    doubling_adds_byte_hit_ratio: float
    doubling_saves_bytes: int
    replayed: bool
    clairvoyant_byte_hit_ratio: float | None
    bound_byte_hit_ratio: float | None


@dataclasses.dataclass(frozen=True)
class Need:
    """The smallest capacity at which LRU has a `ratio` of the `kind` hit or byte hit; None: no capacity.

    `reachable`: the ratio of a cache that holds everything.
    """

    kind: str
    ratio: float
    reachable: float
    capacity_bytes: int | None
    capacity_fraction: float | None


@dataclasses.dataclass(frozen=True)
class CurveAnswer:
    """The curve of a trace. `exact_from_bytes`: size of the largest file read, see `Point.replayed`."""

    requests: int
    bytes_requested: int
    footprint_bytes: int
    exact_from_bytes: int
    points: list[Point]
    needs: list[Need]
    answers: list[str]
    notes: tuple[str, ...]


def run(
    settings: Settings,
    accesses: Accesses,
    *,
    hit_ratios: Sequence[float],
    byte_hit_ratios: Sequence[float],
    capacities: Sequence[int],
    fractions: Sequence[float],
    on_progress: Advance,
) -> CurveAnswer:
    """LRU's curve of `accesses`.

    It has about twenty capacities and the given ones; then the capacities that the given ratios need. For the
    tables, the effect of doubling is shown for the configured caches, unless capacities are given. Raises
    InputError, StaleInputError.
    """
    on_progress(0, 1, "reading")
    if accesses.trace is None and not (capacities or fractions):
        site = accesses.only.get("site")
        total = sum(cache.capacity for cache in settings.caches.values() if site in (None, cache.at_site))
        capacities = [total] if total else []
    loaded, from_s = accesses.load(settings), accesses.first_day_s
    footprint = loaded.trace.footprint_bytes
    if not footprint:
        raise InputError("all files read are empty, so that every cache is the same; choose another trace")
    shown_sizes = sizes(loaded.trace, capacities=capacities, fractions=fractions)
    on_progress(0, 1, "every capacity")
    curve = lru_curve(loaded.trace, count_from_s=from_s)
    spaced = np.geomspace(max(1.0, LEAST_FRACTION * footprint), footprint, N_POINTS)
    listed = sorted({*map(int, spaced[:-1]), footprint, *shown_sizes})
    ideal = {listed[i] for i in np.linspace(0, len(listed) - 1, min(N_IDEAL, len(listed))).astype(int)}
    replays = _replays(
        loaded.trace, curve, listed=listed, ideal=ideal, count_from_s=from_s, on_progress=on_progress
    )
    most, most_bytes = curve.hit_ratio_at(footprint), curve.byte_hit_ratio_at(footprint)
    needs = [
        Need(kind, ratio, reachable, size, None if size is None else size / footprint)
        for kind, ratio, reachable, size in (
            *(("hit", r, most, curve.capacity_for(hit_ratio=r)) for r in hit_ratios),
            *(("byte hit", r, most_bytes, curve.capacity_for(byte_hit_ratio=r)) for r in byte_hit_ratios),
        )
    ]
    points = [_point(curve, footprint, size, replays) for size in listed]
    return CurveAnswer(
        requests=curve.requests,
        bytes_requested=curve.bytes_requested,
        footprint_bytes=footprint,
        exact_from_bytes=curve.exact_from_bytes,
        points=points,
        needs=needs,
        answers=[
            *(_sentence(need) for need in needs),
            *_doubling([point for point in points if point.capacity_bytes in shown_sizes]),
        ],
        notes=loaded.notes,
    )


def _replays(
    trace: Trace,
    curve: Curve,
    *,
    listed: Sequence[int],
    ideal: set[int],
    count_from_s: int | None,
    on_progress: Advance,
) -> dict[_Key, Result]:
    """Replays that the curve needs: LRU below the largest file, clairvoyant and bound at `ideal`."""
    # A point needs LRU at twice its capacity too.
    small = {s for size in listed for s in (size, 2 * size) if s < curve.exact_from_bytes}
    policies = {
        size: [*([LRU] if size in small else []), *(_IDEAL if size in ideal else [])]
        for size in (*listed, *small)
    }
    candidates = [Candidates(size, dict.fromkeys(names)) for size, names in sorted(policies.items())]
    replayed = compare(
        trace,
        candidates,
        count_from_s=count_from_s,
        on_done=lambda done, total, policy: on_progress(1 + done, 1 + total, policy),
    )
    return {(row.policy, row.capacity_bytes): row.result for at in replayed for row in at.rows.values()}


def _point(curve: Curve, footprint: int, size: int, replays: dict[_Key, Result]) -> Point:
    def lru(capacity: int) -> tuple[float, int]:
        result = replays.get((LRU, capacity))
        if result is None:
            return curve.hit_ratio_at(capacity), curve.hit_bytes_at(capacity)
        return result.hit_ratio, result.hit_bytes

    def best(policy: str) -> float | None:
        result = replays.get((policy, size))
        return None if result is None else result.byte_hit_ratio

    (hit, hit_bytes), (hit_twice, hit_bytes_twice) = lru(size), lru(2 * size)
    more_bytes, requested = hit_bytes_twice - hit_bytes, max(1, curve.bytes_requested)
    return Point(
        capacity_bytes=size,
        capacity_fraction=size / footprint,
        hit_ratio=hit,
        byte_hit_ratio=hit_bytes / requested,
        wan_bytes=curve.bytes_requested - hit_bytes,
        doubling_adds_hit_ratio=hit_twice - hit,
        doubling_adds_byte_hit_ratio=more_bytes / requested,
        doubling_saves_bytes=more_bytes,
        replayed=(LRU, size) in replays,
        clairvoyant_byte_hit_ratio=best("clairvoyant"),
        bound_byte_hit_ratio=best(BOUND),
    )


def _sentence(need: Need) -> str:
    ratio = f"a {need.kind} ratio of {percent(need.ratio, 1)}"
    if need.capacity_bytes is None or need.capacity_fraction is None:
        return (
            f"{ratio.capitalize()} is out of reach: at most {percent(need.reachable, 1)}, since every file "
            "is missed once."
        )
    room = f"{format_bytes(need.capacity_bytes)} ({percent(need.capacity_fraction, 1)} of the footprint)"
    return f"For {ratio} LRU needs {room}."


def _doubling(points: Sequence[Point]) -> list[str]:
    return [
        f"Doubling {format_bytes(point.capacity_bytes)} lifts LRU's byte hit ratio from "
        f"{percent(point.byte_hit_ratio, 1)} to "
        f"{percent(point.byte_hit_ratio + point.doubling_adds_byte_hit_ratio, 1)} and saves "
        f"{format_bytes(point.doubling_saves_bytes)} of WAN traffic."
        for point in points
    ]


def export_curve(answer: CurveAnswer, out: Path | None, *, title: str) -> None:
    """Write an LRU curve to `out`, if given, in the format of its suffix."""
    points = [as_row(point) for point in answer.points]
    rows = [select(row, (*CURVE_COLUMNS, "capacity_fraction", "doubling_saves_bytes")) for row in points]
    page = Page(title, answer.notes, rows, answer.answers, note=BOUND_NOTE)
    write_page(out, points, page, lambda plots: plots.lru_against_capacity(points))
