"""Two XCaches side by side, one kept by a steward: what each hits, beside its replay."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from promises import check
from steward_site import Site, running

from prefetch.xcache.gstream import CaptureReader


class Read(NamedTuple):
    """A read of file `item`: bytes from the cache's disk and from the origin."""

    item: int
    hit: int
    missed: int


def side_by_side(plain: Site) -> str:
    """The same reads through two caches, one with a steward that keeps LRU; and their replay."""
    chance = np.random.default_rng(7)
    popularity = 1 / np.arange(1, 61) ** 0.9
    items = chance.choice(60, 400, p=popularity / popularity.sum()).tolist()
    with running() as stewarded:
        for site in (plain, stewarded):
            names = site.files("s", 60)
        site_steward, n_held = stewarded.steward(), []
        for item in items:
            plain.read(names[item])
            n_held.append(len(stewarded.held()))
            stewarded.read(names[item])
            time.sleep(0.25)
        time.sleep(3)
        reads = closes(stewarded, names)
        check(max(n_held) <= 20 and min(n_held[60:]) > 8, "above its high watermark, or purged to 8 files")
        n_looks, n_purged = stewarded.purged()
        check(n_looks > 0 and not n_purged, f"XCache's log: {n_looks} looks, {n_purged} files purged")
        check(site_steward.poll() is None and "steward-outrun" not in stewarded.figures.alarms, "outrun")
        plain_reads = closes(plain, names)
        share, replayed = hits(reads), replay(items, n_held)
        check(abs(share - replayed) <= 0.02, f"byte hits {share:.3f}, replay {replayed:.3f}")
        return (
            f"{len(items)} reads; byte hits with the steward {share:.3f}, replay {replayed:.3f}, plain "
            f"{hits(plain_reads):.3f}; {stewarded.figures.evicted_files} evictions confirmed, XCache looked "
            f"{n_looks} times by its log and purged nothing"
        )


def closes(site: Site, names: list[str]) -> list[Read]:
    """The reads of files `names` that the cache reported."""
    number = {name: at for at, name in enumerate(names)}
    reads = []
    for path in sorted(site.captures.glob("gstream-*")):
        events = CaptureReader(path).poll()
        reads += [
            Read(number[close.lfn], close.b_hit, close.b_miss) for close in events if close.lfn in number
        ]
    return reads


def hits(reads: list[Read]) -> float:
    """Byte hits of `reads`; a file is read from its disk or from the origin as a whole."""
    return sum(not read.missed for read in reads) / len(reads)


def replay(items: list[int], n_held: list[int]) -> float:
    """Byte hits of LRU on the same reads with the same room: the steward keeps a varying part free."""
    read_at: dict[int, int] = {}
    n_hits = 0
    for at, (item, room) in enumerate(zip(items, n_held, strict=True)):
        for old in sorted(read_at, key=read_at.__getitem__)[: max(0, len(read_at) - room)]:
            del read_at[old]
        n_hits += item in read_at
        read_at[item] = at
    return n_hits / len(items)
