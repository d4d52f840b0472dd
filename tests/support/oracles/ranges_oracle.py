"""Ranges looked at slowly: what each server holds, what moved, and Rucio's own choice of a server."""

import itertools
from collections.abc import Mapping
from hashlib import sha256
from struct import unpack
from typing import Any

from replay.ranges import Layout


def rucio_server(reply: Mapping[str, Any], name: str) -> str:
    """As Rucio 41 chooses from a site's part of `/serverRanges`; the form was seen on a real server."""
    h = float(unpack("Q", sha256(name.encode("utf-8")).digest()[:8])[0]) / 2**64
    for index, upper in reply["ranges"]:
        if h < upper:
            return str(reply["servers"][index][0])
    return ""


def held(layout: Layout) -> dict[str, int]:
    """Units of the hash space by server."""
    widths: dict[str, int] = {}
    starts = [0, *(part.upper for part in layout.ranges)]
    for start, (owner, upper) in zip(starts, layout.ranges, strict=False):
        widths[owner] = widths.get(owner, 0) + upper - start
    return widths


def moved(before: Layout, after: Layout) -> int:
    """Units of the hash space whose server changed, stretch by stretch between two edges."""
    cuts = sorted({0, *(part.upper for part in (*before.ranges, *after.ranges))})
    stretches = zip(itertools.pairwise(cuts), _owners(before, cuts), _owners(after, cuts), strict=True)
    return sum(end - at for (at, end), before, after in stretches if before != after)


def _owners(layout: Layout, cuts: list[int]) -> list[str]:
    parts = iter(layout.ranges)
    part, owners = next(parts), []
    for at in cuts[:-1]:
        while part.upper <= at:
            part = next(parts)
        owners.append(part.owner)
    return owners
