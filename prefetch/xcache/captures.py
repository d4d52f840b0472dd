"""Follows the folder that a collector writes to, as one capture that grows."""

from __future__ import annotations

from pathlib import Path

from features.errors import InputError
from prefetch.xcache.gstream import PSEQ_MODULUS, CaptureReader, FileClose
from prefetch.xcache.numbering import Numberings
from prefetch.xcache.rolling import PART


class FolderReader:
    """Reads a collector's folder that grows: every `poll` gives what came since the last one.

    Files are read in the order of their names, each once, also while it is being written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numberings = Numberings(PSEQ_MODULUS)
        self._done = ""
        self._offset = 0

    @property
    def n_lost(self) -> int:
        """Datagrams missing so far."""
        return self._numberings.n_lost

    def poll(self) -> list[FileClose]:
        """Events since the last poll. Raises InputError if a capture cannot be read."""
        events: list[FileClose] = []
        for path in sorted(self._folder.glob("gstream-*.capture*"), key=_name):
            if _name(path) <= self._done:
                continue
            reader = CaptureReader(path, self._numberings, offset=self._offset)
            try:
                events += reader.poll()
            except InputError:
                if path.exists():
                    raise
                break  # finished since it was listed: it has its last name at the next poll
            self._offset = reader.offset
            if path.suffix == PART:
                break
            self._done, self._offset = path.name, 0
        return events


def capture_reader(path: Path) -> CaptureReader | FolderReader:
    """What follows the capture at `path`: a file, or a collector's folder."""
    return FolderReader(path) if path.is_dir() else CaptureReader(path)


def _name(path: Path) -> str:
    return path.name.removesuffix(PART)
