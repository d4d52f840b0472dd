"""Reads `.cinfo` files: XCache's own record of one cached file.

Source: format version 4 as written by XRootD 5.0 to 6.2.1 on little-endian machines; see
`XrdPfcInfo.hh`. Versions 2 and 3 of older caches are refused.
"""

import os
import stat
import struct
import time
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from features.common.errors import InputError

SUFFIX = ".cinfo"
VERSION = 4
# A cache of petabytes holds no file whose block map is longer than this.
MAX_BYTES = 64 * 2**20
# No file has a petabyte; of sizes beyond it a few would not fit into a sum of 64 bits.
MAX_FILE_BYTES = 2**50
# A cache keeps 20 unless configured otherwise, and merges older ones.
MAX_RECORDS = 100_000
BYTES_PER_BLOCK = 512
"""Of `st_blocks`."""
_SLACK_BYTES = 2**20
_ALLOCATED_WITHIN_S = 60.0
_ACCESS = struct.Struct("<qqiiiiqqq")
_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<qqqqQIiI")
_STORE_AT = 4  # after the version
_BLOCKS_AT = _STORE_AT + _HEAD.size
_STORE_CRC_AT = _BLOCKS_AT - _CRC.size


class Doubted(InputError):
    """A record that is not believed, and does not become better."""


class AccessRecord(NamedTuple):
    """One access, or several merged. Times are s since 1970; `detach_s` is 0 while the file is open."""

    attach_s: int
    detach_s: int
    n_ios: int
    duration_s: int
    n_merged: int
    reserved: int
    bytes_hit: int
    bytes_missed: int
    bytes_bypassed: int

    @property
    def bytes_read(self) -> int:
        return self.bytes_hit + self.bytes_missed + self.bytes_bypassed


class CInfo(NamedTuple):
    """One cached file. `blocks` is a bit vector, least significant bit first; 1: the block is on disk."""

    block_size_bytes: int
    size_bytes: int
    created_s: int
    no_checksum_s: int
    n_accesses: int
    status: int
    blocks: bytes
    accesses: tuple[AccessRecord, ...]

    @property
    def n_blocks(self) -> int:
        """Blocks of the whole file; a file of 0 bytes has one, as the cache counts."""
        return _n_blocks(self.size_bytes, self.block_size_bytes)

    @property
    def complete(self) -> bool:
        """Every byte is on disk. A file of 0 bytes is, though its one block is never marked."""
        return self.bytes_on_disk == self.size_bytes

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of the blocks on disk; the last block may be short."""
        n_blocks, size = self.n_blocks, self.block_size_bytes
        last = n_blocks - 1
        has_last = self.blocks[last >> 3] >> (last & 7) & 1
        missing_tail = n_blocks * size - self.size_bytes if has_last else 0
        n_on_disk = (int.from_bytes(self.blocks, "little") & ((1 << n_blocks) - 1)).bit_count()
        return n_on_disk * size - missing_tail

    @property
    def is_open(self) -> bool:
        """The last access has not ended, or the cache died in it."""
        return bool(self.accesses) and not self.accesses[-1].detach_s

    @property
    def last_detach_s(self) -> int | None:
        last_s = 0
        for access in self.accesses:
            last_s = max(last_s, access.detach_s)
        return last_s or None

    @property
    def last_use_s(self) -> int:
        """End of the last ended access by a job, else when the file came.

        Prefetches and touches, which read at most a byte of each block, are no uses.
        """
        n_blocks, last_s = self.n_blocks, 0
        for access in self.accesses:
            if access.detach_s > last_s and access.bytes_read > n_blocks:
                last_s = access.detach_s
        return last_s or self.created_s


def parse(content: bytes) -> CInfo:
    """The record in `content`; bytes after its end are ignored.

    Raises InputError if it is cut short, of another version, or fails one of its two CRC32C.
    """
    if len(content) > MAX_BYTES:
        raise InputError(f"cinfo of {len(content)} bytes; at most {MAX_BYTES} are read")
    version = int.from_bytes(content[:_STORE_AT], "little", signed=True)
    if version != VERSION and len(content) >= _STORE_AT:
        raise InputError(f"cinfo of version {version}; only version {VERSION} (XRootD 5.0 to 6.2) is read")
    if len(content) < _BLOCKS_AT:
        raise InputError(f"cinfo cut short: {len(content)} bytes, {_BLOCKS_AT} expected")
    block_size, size, created_s, no_checksum_s, n_accesses, status, n_records, crc = _HEAD.unpack_from(
        content, _STORE_AT
    )
    _check_crc(crc, content, _STORE_AT, _STORE_CRC_AT)
    if block_size <= 0 or not 0 <= size <= MAX_FILE_BYTES or not 0 <= n_records <= MAX_RECORDS:
        raise InputError(f"cinfo with block size {block_size}, file size {size}, {n_records} access records")
    records_at = _BLOCKS_AT + (_n_blocks(size, block_size) - 1) // 8 + 1
    end = records_at + n_records * _ACCESS.size
    if end + _CRC.size > len(content):
        raise InputError(f"cinfo cut short: {len(content)} bytes, {end + _CRC.size} expected")
    _check_crc(_CRC.unpack_from(content, end)[0], content, _BLOCKS_AT, end)
    accesses = tuple(map(AccessRecord._make, _ACCESS.iter_unpack(content[records_at:end])))
    blocks = content[_BLOCKS_AT:records_at]
    return CInfo(block_size, size, created_s, no_checksum_s, n_accesses, status, blocks, accesses)


def doubt(info: CInfo, path: str) -> str | None:
    """Why the record `info` at `path` is not believed; None: it is.

    A file called `X.cinfo` at an origin, read through the cache, lies where the record of `X` belongs; that
    it is data shows in a record of its own. What a record claims must be allocated beside it, about: disks
    may compress, and some allocate only after a while.
    """
    if _is_data(path):
        return "a file of jobs, called as a record is"
    try:
        status = os.stat(path.removesuffix(SUFFIX))  # noqa: PTH116  a path costs more, for each of a million
    except OSError:
        return None
    allocated = 2 * status.st_blocks * BYTES_PER_BLOCK + _SLACK_BYTES
    if allocated >= info.size_bytes or allocated >= info.bytes_on_disk:
        return None
    return None if time.time() - status.st_mtime < _ALLOCATED_WITHIN_S else "claims more than its file has"


def _is_data(path: str | Path) -> bool:
    return os.access(f"{path}{SUFFIX}", os.F_OK, follow_symlinks=False)


def read(path: Path) -> CInfo:
    """The record in file `path`. Raises InputError naming the file, Doubted if it is not believed, and
    OSError as `open` does.
    """
    # A pipe in a namespace would wait for a writer for ever.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise InputError(f"{path} is no plain file")
        content = stream.read(MAX_BYTES + 1)
    try:
        info = parse(content)
    except InputError as error:
        raise (Doubted if _is_data(path) else InputError)(f"{path}: {error}") from error
    if (why := doubt(info, str(path))) is not None:
        raise Doubted(f"{path}: {why}")
    return info


def _n_blocks(size_bytes: int, block_size_bytes: int) -> int:
    return -(-size_bytes // block_size_bytes) or 1


def _check_crc(crc: int, content: bytes, start: int, end: int) -> None:
    if crc != google_crc32c.value(content[start:end]):
        raise InputError(f"cinfo damaged: wrong CRC32C of bytes {start} to {end}")
