"""Plans as they are sent: from the one packed copy in memory, piece by piece as the client takes them."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

PIECE_BYTES = 64 * 1024


async def pieces(plan: bytes, *, packed: bool) -> AsyncIterator[bytes]:
    """A gzipped `plan`, as it is if `packed`, else unpacked; no piece is longer than `PIECE_BYTES`."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    view = memoryview(plan)
    for start in range(0, len(plan), PIECE_BYTES):
        rest = bytes(view[start : start + PIECE_BYTES])
        while rest:
            piece = rest if packed else unpacker.decompress(rest, PIECE_BYTES)
            rest = b"" if packed else unpacker.unconsumed_tail
            if piece:
                yield piece
            # A client that reads fast leaves the loop to others all the same.
            await asyncio.sleep(0)
    if not packed and (last := unpacker.flush()):
        yield last
