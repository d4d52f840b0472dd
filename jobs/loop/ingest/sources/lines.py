"""Lines of this machine's text files as Arrow batches, about a MiB of them at a time."""

import codecs
import dataclasses
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.errors import InputError, NotPlainError
from features.common.input_files import PACKED, InputFile, Unpacked, plain

MOST_LINE_BYTES = 16 * 2**20  # of one line; what is longer is cut there, which makes no record of it

# What a core's cache holds, and no fewer lines than DuckDB takes at once.
_CHUNK_BYTES = 2**20
# A MiB may be a million lines, and each has the name of its file.
_LINES_AT_ONCE = 2**16
_LINE_FEED = 10
_MAY_HOLD_LINES = 2**20  # every packed file may, and a large one a line for each of its bytes
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what text in UTF-16 begins with
# What is quoted in a URI of Java's.
_QUOTED = re.compile('[\x00-\x20"#%<>?\\[\\\\\\]^`{|}\x7f-\xa0]')


# JSON records over several lines, as of `condor_history -json` and of tools that make JSON readable: a record
# begins with a line that has nothing but its brace, and ends where its braces are balanced. One that was cut
# ends where another begins, or where no line of a record follows: it is refused alone, the others are read.
_BARE = r"^[\s\[\],]*[\[\],{][\s\[\],]*$"
"""A line of brackets and commas, and at most one brace that begins a record: only such a file is joined."""
_BEGINS = re.compile(r"^[\s\[\],]*\{\s*$")
_BETWEEN = re.compile(r"^[\s\[\],]*$")
_GOES_ON = re.compile(r"""^(?:\s+\S|[\[\]{},]|"[^"]*"\s*:|$)""")
# One without an end goes to the end of the text: each quote in it would be tried as a beginning.
_STRING = re.compile(r'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL)
_AROUND = " \t[],"


class Piece(NamedTuple):
    """Whole lines of a file: its bytes from `start` up to `stop` (None: its end)."""

    file: InputFile
    start: int = 0
    stop: int | None = None


def uri_of(file: InputFile) -> str:
    return f"file:{_QUOTED.sub(lambda match: quote(match[0]), str(file.path.absolute()))}"


def pieces(file: InputFile, most_bytes: int) -> list[Piece]:
    """`file` in pieces of about `most_bytes`. Raises NotPlainError, and InputError if it cannot be read."""
    with _readable(file), plain(file) as name, Path(name).open("rb") as stream:
        with Unpacked(name, file) as content:
            _beginning(content, file)
        size, starts = os.fstat(stream.fileno()).st_size, [0]
        for near in range(most_bytes, 0 if file.path.suffix in PACKED else size, most_bytes):
            stream.seek(max(near, starts[-1]))
            if stream.readline(MOST_LINE_BYTES).endswith(b"\n") and stream.tell() < size:
                starts.append(stream.tell())
    return [Piece(file, *ends) for ends in zip(starts, [*starts[1:], None], strict=True)]


def batches(
    pieces: Iterable[Piece], refuse: Callable[[InputFile, NotPlainError], None]
) -> Iterator[pa.RecordBatch]:
    """The lines of `pieces`: value (`text_of`) and input, the file's URI; gz, bz2, zst are unpacked.

    `refuse` is called with what is no plain file. Raises InputError naming a file that is broken.
    """
    for piece in pieces:
        try:
            for values in _lines(piece):
                for begin in range(0, len(values), _LINES_AT_ONCE):
                    part = values[begin : begin + _LINES_AT_ONCE]
                    inputs = pa.repeat(pa.scalar(uri_of(piece.file)), len(part))
                    yield text_of(pa.record_batch({"value": part, "input": inputs}))
        except NotPlainError as error:
            refuse(piece.file, error)


def text_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`batch` with `value`, lines as bytes, as text: long ones cut, bytes that are no UTF-8 replaced."""
    values = batch["value"]
    if (pc.max(pc.binary_length(values)).as_py() or 0) > MOST_LINE_BYTES:
        values = pc.binary_slice(values, 0, MOST_LINE_BYTES)
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([value.decode(errors="replace") for value in values.to_pylist()], pa.string())
    return batch.set_column(batch.schema.get_field_index("value"), "value", texts)


def first_line(files: Sequence[InputFile]) -> str:
    """The first line that is not blank; empty if there is none."""
    # Who reads the files afterwards counts what is refused.
    looks = batches(map(Piece, files), lambda _file, _why: None)
    values = (value.as_py() for batch in looks for value in batch["value"])
    return next((str(line) for line in values if line.strip(" ")), "")


def fail(file: InputFile, why: NotPlainError) -> None:
    raise InputError(f"cannot read {file.path}: it is {why.kind}, not a plain file")


def _lines(piece: Piece) -> Iterator[pa.BinaryArray]:
    rest = b""
    for chunk in _chunks(piece):
        if len(rest) > MOST_LINE_BYTES and not any(end in (rest[-1:] + chunk) for end in (b"\n", b"\r")):
            continue  # of a line that is cut already
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


def _chunks(piece: Piece) -> Iterator[bytes]:
    with _readable(piece.file), plain(piece.file) as name, Unpacked(name, piece.file) as stream:
        left = sys.maxsize if piece.stop is None else piece.stop - piece.start
        if piece.start:
            stream.seek(piece.start)
        else:
            begin = _beginning(stream, piece.file)
            left -= len(begin)
            yield begin.removeprefix(codecs.BOM_UTF8)
        is_packed = piece.file.path.suffix in PACKED
        n_lines_left = max(_MAY_HOLD_LINES, Path(name).stat().st_size) if is_packed else sys.maxsize
        while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            n_lines_left -= max(chunk.count(b"\n"), chunk.count(b"\r")) if is_packed else 0
            if n_lines_left < 0:  # each costs as much as a record does
                raise NotPlainError(str(piece.file.path), "packed, and more lines than its bytes")
            yield chunk


def _beginning(stream: io.RawIOBase, file: InputFile) -> bytes:
    """The first bytes of a file, as many as a byte order mark has. Raises NotPlainError for UTF-16."""
    begin = b""
    while len(begin) < len(codecs.BOM_UTF8) and (more := stream.read(len(codecs.BOM_UTF8) - len(begin))):
        begin += more
    if begin.startswith(UTF_16):
        raise NotPlainError(str(file.path), "text in UTF-16 (write it as UTF-8)")
    return begin


@contextmanager
def _readable(file: InputFile) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        raise InputError(f"cannot read {file.path}: permission denied; let this account read it") from None
    except (OSError, EOFError, pa.ArrowInvalid):
        raise InputError(f"cannot read {file.path}: it is broken, or still being written") from None


@dataclasses.dataclass
class _Record:
    """Lines of a record so far, and the braces that are open; `indent`: of its first line."""

    source: str
    indent: int
    parts: list[str] = dataclasses.field(default_factory=list)
    depth: int = 0
    size: int = 0

    def add(self, line: str) -> None:
        plain = _STRING.sub("", line)
        self.depth += plain.count("{") - plain.count("}")
        self.size += len(line)
        # What is longer than a line may be is refused: no more of it is kept.
        if self.size <= 2 * MOST_LINE_BYTES:
            self.parts.append(line.strip())

    @property
    def line(self) -> str:
        return " ".join(self.parts).strip(_AROUND)


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`batches` of lines (value, input) of one file after the other, with one line for each record."""
    record: _Record | None = None
    schema = None
    for batch in batches:
        schema = batch.schema
        if record is None and not pc.any(pc.match_substring_regex(batch["value"], _BARE)).as_py():
            yield batch
            continue
        rows: list[tuple[str, str]] = []
        for line, source in zip(batch["value"].to_pylist(), batch["input"].to_pylist(), strict=True):
            record = _with_line(record, line, source, rows)
        yield _batch_of(rows, schema)
    if record is not None:
        yield _batch_of([(record.line, record.source)], schema)


def _with_line(record: _Record | None, line: str, source: str, rows: list[tuple[str, str]]) -> _Record | None:
    """The record that is open after `line`; what is whole, or no part of a record, goes to `rows`."""
    bare = line.lstrip()
    indent = len(line) - len(bare)
    if record is not None:
        is_another = source != record.source or (bare.startswith("{") and indent <= record.indent)
        if not is_another and _GOES_ON.match(line):
            record.add(line)
            if record.depth > 0:
                return record
            rows.append((record.line, source))
            return None
        rows.append((record.line, record.source))
    if _BEGINS.match(line):
        record = _Record(source, indent)
        record.add(line)
        return record
    if not _BETWEEN.match(line):
        rows.append((line, source))
    return None


def _batch_of(rows: list[tuple[str, str]], schema: pa.Schema | None) -> pa.RecordBatch:
    values, inputs = zip(*rows, strict=True) if rows else ((), ())
    columns = {"value": pa.array(values, pa.string()), "input": pa.array(inputs, pa.string())}
    return pa.record_batch(columns).cast(schema)
