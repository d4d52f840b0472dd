"""Lines of this machine's text files as Arrow batches, about a MiB of them at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from features.errors import InputError
from jobs.ingest.sources.workspace import MOST_LINE_BYTES

# What a core's cache holds, and no fewer lines than DuckDB takes at once.
_CHUNK_BYTES = 2**20
_LINE_FEED = 10
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# What is quoted in a URI of Java's.
_QUOTED = re.compile('[\x00-\x20"#%<>?\\[\\\\\\]^`{|}\x7f-\xa0]')


def uri_of(file: Path) -> str:
    """The name of an input, as Spark has it."""
    return f"file:{_QUOTED.sub(lambda found: quote(found[0]), str(file.absolute()))}"


def batches(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """The lines of `files`: value as bytes, and input, the file's URI.

    A line ends with a line feed, a carriage return or both. gz, bz2 and zst by their suffix. Raises
    InputError naming a file that is broken.
    """
    for file in files:
        for values in _lines(file):
            inputs = pa.repeat(pa.scalar(uri_of(file)), len(values))
            yield pa.record_batch({"value": values, "input": inputs})


def first_line(files: Sequence[Path]) -> str:
    """The first line that is not blank; empty if there is none."""
    lines = (line.as_py() for file in files for some in _lines(file) for line in some)
    return next((line for line in lines if line.strip(b" ")), b"").decode(errors="replace")


def _lines(file: Path) -> Iterator[pa.BinaryArray]:
    rest = b""
    for chunk in _chunks(file):
        content = _with_line_feeds(rest + chunk)
        whole, feed, rest = content.rpartition(b"\n")
        if feed:
            yield _split(whole)
        if len(rest) > MOST_LINE_BYTES:
            # Cut, but not within what may be half of a line's end.
            rest = rest[:MOST_LINE_BYTES] + rest[-1:]
    if rest:
        yield _split(rest.replace(b"\r", b"\n"))


def _with_line_feeds(content: bytes) -> bytes:
    if b"\r" not in content:
        return content
    # A carriage return at the end may be half of a line's end.
    last = b"\r" if content.endswith(b"\r") else b""
    return content.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n") + last


def _split(content: bytes) -> pa.BinaryArray:
    feeds = np.flatnonzero(np.frombuffer(content, np.uint8) == _LINE_FEED)
    n_feeds = len(feeds)
    # Where lines begin once the line feeds are gone, and where the last one ends.
    begins = np.concatenate([[0], feeds - np.arange(n_feeds), [len(content) - n_feeds]]).astype(np.int32)
    buffers = [None, pa.py_buffer(begins), pa.py_buffer(content.replace(b"\n", b""))]
    return pa.Array.from_buffers(pa.binary(), n_feeds + 1, buffers)


def _chunks(file: Path) -> Iterator[bytes]:
    try:
        with _opened(file) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        if isinstance(error, PermissionError):
            raise InputError(f"cannot read {file}: permission denied; let this account read it") from None
        raise InputError(f"cannot read {file}: it is broken, or still being written") from None


def _opened(file: Path) -> Any:
    packing = _PACKED.get(file.suffix)
    return file.open("rb") if packing is None else pa.input_stream(str(file), compression=packing)
