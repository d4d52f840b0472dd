"""The use of a directory-backed cache, reported in the format of XCache's g-stream."""

from __future__ import annotations

import json
import os
import secrets
import threading
from pathlib import Path

from features.common.errors import TargetUnavailable
from prefetch.xcache.collector import append, frame
from prefetch.xcache.gstream import PSEQ_MODULUS

BLOCK_BYTES = 128 * 1024


class DirectoryStream:
    """Writes `file_close` records as a cache of one life: framed, numbered, one a datagram."""

    def __init__(self, path: Path, site: str, started_s: int) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._pseq = 0
        self._header = {
            "stod": started_s,
            "sid": secrets.randbits(48),
            "src": {"site": site, "host": "localhost", "port": 0, "inst": f"directory-{os.getpid()}"},
        }

    def send(self, now_s: int, lfn: str, size: int, *, hit: int, missed: int, origin: str | None) -> None:
        """Append a record of bytes hit and missed. Raises TargetUnavailable if it cannot be written."""
        record = {"event": "file_close", "lfn": lfn, "size": size, "blk_size": BLOCK_BYTES}
        record |= {
            "n_blks": n_blocks_of(size),
            "n_blks_done": n_blocks_of(size) if size else 0,
            "access_cnt": 1,
        }
        record |= {"attach_t": now_s, "detach_t": now_s, "remotes": [] if origin is None else [origin]}
        record |= {"b_hit": hit, "b_miss": missed, "b_bypass": 0, "n_cks_errs": 0}
        with self._lock:
            self._pseq = (self._pseq + 1) % PSEQ_MODULUS
            header = {"code": "g", "pseq": self._pseq, **self._header}
            header["gs"] = {"type": "C", "tbeg": now_s, "tend": now_s}
            body = "\n".join(json.dumps(part, separators=(",", ":")) for part in (header, record))
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                try:
                    append(descriptor, frame(now_s, 0, body.encode()))
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise TargetUnavailable(f"cannot write {self._path}: {error.strerror}") from error


def n_blocks_of(size_bytes: int) -> int:
    """Blocks of a file as XCache counts them: at least one."""
    return max(1, -(-size_bytes // BLOCK_BYTES))
