"""Failures of the machine that Spark, Arrow or SQLite tell in their own words, in words that help."""

from __future__ import annotations

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
    """What to tell a person who can mend it; None for what nobody foresaw."""
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    text = str(error)
    return next((what for words, what in _REMEDIES.items() if any(word in text for word in words)), None)
