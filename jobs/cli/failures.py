"""Failures of the machine and of paths that libraries report in their own words, in words that help."""

from __future__ import annotations

import os

from features.common.errors import printable

_NO_ROOM = (
    "No space left on device",
    "File too large",
    "Disk quota exceeded",
    "database or disk is full",
    "No usable temporary directory",
)
_NO_MEMORY = (
    "the memory does not suffice; no table is half written: choose fewer days or a smaller input, or a "
    "machine with more memory, and run it again"
)
_REMEDIES = {
    ("JAVA_GATEWAY_EXITED",): "Spark's JVM did not start, and said why above: it needs Java 17 or later "
    "(`java -version`), and sound values of [spark] driver_memory and conf",
    ("java.lang.OutOfMemoryError",): "Spark ran out of memory; no table is half written: "
    "raise [spark] driver_memory and run it again",
    _NO_ROOM: "a disk is full; no table is half written: make room where [tables] root, [push] journal and "
    "Spark's temporary files (spark.local.dir) are, and run it again",
}


def remedy(error: Exception) -> str | None:
    """What to tell a person who can mend it, in one line; None for what nobody foresaw."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    text = str(error)
    if found := [what for words, what in _REMEDIES.items() if any(word in text for word in words)]:
        return found[0]
    if isinstance(error, OSError) and isinstance(path := error.filename2 or error.filename, str | bytes):
        return printable(f"cannot use {os.fsdecode(path)}: {error.strerror}; check the path and its rights")
    return None
