"""A mount whose file system never answers, as of a dead NFS server; needs root."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DETACH = 2


@contextmanager
def hung_mount(folder: Path) -> Iterator[None]:
    """Mount a file system of FUSE on `folder`, whose program says nothing; what waits for it ends with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    silent = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={silent},rootmode=40000,user_id=0,group_id=0".encode()
    try:
        mounted = libc.mount(b"hung", bytes(folder), b"fuse", 0, options)
        assert mounted == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        os.close(silent)
        libc.umount2(bytes(folder), _DETACH)
