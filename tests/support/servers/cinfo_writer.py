"""Writes `.cinfo` files, as a cache does; see `prefetch.xcache.cinfo`, which reads them."""

import struct
from pathlib import Path

import google_crc32c

from prefetch.xcache.cinfo import VERSION, CInfo


def dump(info: CInfo) -> bytes:
    """The bytes of `info`."""
    *store_fields, _, _ = info
    store = struct.pack("<qqqqQIi", *store_fields, len(info.accesses))
    tail = info.blocks + b"".join(struct.pack("<qqiiiiqqq", *access) for access in info.accesses)
    return struct.pack("<i", VERSION) + store + crc(store) + tail + crc(tail)


def put(namespace: Path, name: str, record: bytes | CInfo) -> Path:
    """The file with the record of file `name`."""
    path = namespace / f"{name.lstrip('/')}.cinfo"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump(record) if isinstance(record, CInfo) else record)
    return path


def crc(content: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(content))
