"""Any order of eviction, as a loop over events asks it.

Of `Followed` one part is an order, the others are None. A kernel is compiled for each kind of order: what is
done where an argument is not None is left out where it is, so that the others' code costs nothing.
"""

from typing import NamedTuple

from features.common.arrays import Ids
from features.common.jit import inner
from features.stream.state import Read
from replay.kernels import auto as by_shadows
from replay.kernels import heuristics
from replay.kernels import learned as by_model
from replay.kernels.auto import N_HEURISTICS, NOW_S, SHADOWS, Auto, Learnt
from replay.kernels.chooser import FOLLOWED
from replay.kernels.heuristics import LRU, Heuristic, is_held
from replay.kernels.learned import Learned
from replay.kernels.scored_files import Eviction, expect

Followed = tuple[Heuristic | None, Learned | None, Auto | None]
"""The arrays of an order, and None in the two other places."""


class Event(NamedTuple):
    """A read of a file, which was on disk or not."""

    read: Read
    was_held: bool


class Ask(NamedTuple):
    """Room for the files that an eviction takes; `eviction.bytes_of` does not matter."""

    eviction: Eviction
    victim: Ids


@inner
def bytes_on_disk(file: int, heuristic: Heuristic | None, learned: Learned | None, auto: Auto | None) -> int:
    """What the file has on disk, as far as the order knows; -1: it is not there."""
    n_bytes = -1
    if heuristic is not None:
        n_bytes = heuristic.queues.n_bytes[file] if is_held(heuristic, file) else -1
    if learned is not None:
        n_bytes = learned.valued.n_bytes[file] if learned.valued.disk.place[file] >= 0 else -1
    if auto is not None:
        n_bytes = auto.heuristics[LRU].queues.n_bytes[file] if is_held(auto.heuristics[LRU], file) else -1
    return n_bytes


@inner
def read(
    event: Event,
    learnt: Learnt,
    heuristic: Heuristic | None,
    learned: Learned | None,
    auto: Auto | None,
) -> None:
    """Count a read of a file."""
    access, was_held = event
    if heuristic is not None:
        heuristics.note_read(heuristic, access.item, was_held)
    if learned is not None:
        by_model.read(learned, learnt, access, was_held)
    if auto is not None:
        by_shadows.read(auto, learnt, access, was_held)


@inner
def store(
    file: int, n_bytes: int, heuristic: Heuristic | None, learned: Learned | None, auto: Auto | None
) -> None:
    """A file has so many bytes on disk from now on."""
    if heuristic is not None:
        heuristics.store(heuristic, file, n_bytes)
    if learned is not None:
        by_model.stored(learned, file, n_bytes)
    if auto is not None:
        by_shadows.stored(auto, file, n_bytes)


@inner
def drop(file: int, heuristic: Heuristic | None, learned: Learned | None, auto: Auto | None) -> None:
    """A file is not on disk any more."""
    if heuristic is not None:
        heuristics.drop(heuristic, file)
    if learned is not None:
        by_model.removed(learned, file)
    if auto is not None:
        by_shadows.removed(auto.heuristics, auto.valued, file)


@inner
def may_go(file: int, heuristic: Heuristic | None, learned: Learned | None, auto: Auto | None) -> None:
    """A file need not stay any more."""
    if heuristic is not None:
        heuristics.may_go(heuristic, file)
    if learned is not None:
        by_model.may_go(learned, file)
    if auto is not None:
        by_shadows.may_go(auto.heuristics, auto.valued, file)


@inner
def tell(
    file: int, due_s: float, heuristic: Heuristic | None, learned: Learned | None, auto: Auto | None
) -> None:
    """Known work is expected to read a file at `due_s`; NaN: not any more."""
    if learned is not None:
        expect(learned.known, file, due_s, learned.clock[0])
    if auto is not None and auto.known.values.due_s.size:
        expect(auto.known, file, due_s, auto.clock[NOW_S])


@inner
def victims(
    ask: Ask,
    learnt: Learnt,
    heuristic: Heuristic | None,
    learned: Learned | None,
    auto: Auto | None,
) -> int:
    """Write files to `ask.victim`, the least valuable first, until their bytes are enough; how many."""
    (n_bytes, now_s, _, spare), victim, n = ask.eviction, ask.victim, 0
    if heuristic is not None:
        n = heuristics.victims(heuristic, n_bytes, spare, victim)
    if learned is not None:
        eviction = Eviction(n_bytes, now_s, learned.valued.n_bytes, spare)
        n = by_model.victims(learned, learnt, eviction, victim)
    if auto is not None:
        eviction = Eviction(n_bytes, now_s, auto.valued.n_bytes, spare)
        n = by_shadows.victims(auto, learnt, eviction, victim)
    return n


@inner
def begun(is_read: bool, heuristic: Heuristic | None, learned: Learned | None, auto: Auto | None) -> int:
    """The number of the learned order that a read, or an eviction, has begun already; -1: none."""
    at = -1
    if learned is not None:
        at = learned.begun[0]
    if auto is not None:
        followed = auto.chooser.state[FOLLOWED]
        if is_read:
            at = auto.begun[SHADOWS]
        elif followed >= N_HEURISTICS:
            at = auto.begun[followed - N_HEURISTICS]
    return at
