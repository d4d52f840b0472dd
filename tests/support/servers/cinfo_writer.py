"""Writes `.cinfo` files, as a cache does; see `prefetch.xcache.cinfo`, which reads them."""

import struct

import google_crc32c

from prefetch.xcache.cinfo import VERSION, CInfo


def dump(info: CInfo) -> bytes:
    """The bytes of `info`."""
    *store_fields, _, _ = info
    store = struct.pack("<qqqqQIi", *store_fields, len(info.accesses))
    tail = info.blocks + b"".join(struct.pack("<qqiiiiqqq", *access) for access in info.accesses)
    return struct.pack("<i", VERSION) + store + crc(store) + tail + crc(tail)


def crc(content: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(content))
