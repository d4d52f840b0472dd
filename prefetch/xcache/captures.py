"""Follows the folder that a collector writes to, as one capture that grows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from features.errors import InputError
from features.files import InputFile
from prefetch.xcache.gstream import PSEQ_MODULUS, CaptureReader, Event, FileClose
from prefetch.xcache.numbering import Numberings
from prefetch.xcache.rolling import PART


class FolderReader:
    """Reads a collector's folder that grows: every `poll` gives what came since the last one.

    Files are read in the order of their names, each once, also while it is being written. One that was begun
    is read to its end, also if it is moved or deleted meanwhile. `newest_bytes`: of the captures that are
    there, begin with the newest ones of this size together; None: with the first.
    """

    def __init__(self, folder: Path, *, newest_bytes: int | None = None) -> None:
        self._folder = folder
        self._numberings = Numberings(PSEQ_MODULUS)
        self._done = "" if newest_bytes is None else _before_newest(folder, newest_bytes)
        self._begun: tuple[Path, CaptureReader] | None = None

    @property
    def n_lost(self) -> int:
        """Datagrams missing so far."""
        return self._numberings.n_lost

    def poll(self) -> Iterator[FileClose]:
        """Closes since the last poll; see `events`."""
        return (event for event in self.events() if isinstance(event, FileClose))

    def events(self) -> Iterator[Event]:
        """Events since the last poll, one after the other. Raises InputError if a capture cannot be read."""
        yield from self._read_on()
        for path in _captures(self._folder):
            if self._begun is None and _name(path) > self._done:
                self._begun = path, CaptureReader(InputFile(self._folder, path.name), self._numberings)
                yield from self._read_on()
            if _name(path) > self._done:
                return  # still being written, or renamed since it was listed: later files wait

    def _read_on(self) -> Iterator[Event]:
        """What is left of the file that was begun, if one was."""
        if self._begun is None:
            return
        path, reader = self._begun
        # Looked at before reading: nothing is written to a file once it has its last name.
        is_finished = path.suffix != PART or not path.exists()
        try:
            yield from reader.events()
        except InputError:
            self._begun = None
            if path.exists():
                raise
            return  # finished or archived since it was listed, so it has another name at the next poll
        if is_finished:
            reader.close()
            self._begun, self._done = None, _name(path)


def capture_reader(path: Path) -> CaptureReader | FolderReader:
    """What follows the capture at `path`: a file, or a collector's folder."""
    return FolderReader(path) if path.is_dir() else CaptureReader(path)


def _captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("gstream-*.capture*"), key=_name)


def _before_newest(folder: Path, n_bytes: int) -> str:
    """The name of the newest capture that is older than the newest `n_bytes`; empty if there is none."""
    for path in reversed(_captures(folder)):
        with contextlib.suppress(FileNotFoundError):
            n_bytes -= path.stat().st_size
        if n_bytes < 0:
            return _name(path)
    return ""


def _name(path: Path) -> str:
    return path.name.removesuffix(PART)
