"""A queue of files with their bytes, from which any file can leave: 16 bytes per known file."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

_ABSENT = -1


class Queue:
    """Files from the oldest to the newest. Numbers of files are 0 or more."""

    def __init__(self) -> None:
        # Neighbours in a ring through place 0, which is no file: file k has place k + 1.
        self._older, self._newer, self._bytes = array("i", [0]), array("i", [0]), array("q", [0])
        self.n_files = 0
        self.used_bytes = 0

    def __contains__(self, file: int) -> bool:
        return file + 1 < len(self._older) and self._older[file + 1] != _ABSENT

    def __iter__(self) -> Iterator[int]:
        """The files, oldest first; the file at hand may leave meanwhile."""
        place = self._newer[0]
        while place:
            following = self._newer[place]
            yield place - 1
            place = following

    @property
    def oldest(self) -> int:
        """The oldest file; there must be one."""
        return self._newer[0] - 1

    def bytes_of(self, file: int) -> int:
        """The bytes of a file in the queue."""
        return self._bytes[file + 1]

    def append(self, file: int, n_bytes: int) -> None:
        """Add a file that is absent as the newest."""
        self._add(file, n_bytes, self._older[0], 0)

    def put_back(self, file: int, n_bytes: int) -> None:
        """Add a file that is absent as the oldest."""
        self._add(file, n_bytes, 0, self._newer[0])

    def resize(self, file: int, n_bytes: int) -> None:
        """Change the bytes of a file in the queue."""
        self.used_bytes += n_bytes - self._bytes[file + 1]
        self._bytes[file + 1] = n_bytes

    def remove(self, file: int) -> int:
        """Take out a file; its bytes."""
        self._unlink(file + 1)
        self.n_files -= 1
        self.used_bytes -= self._bytes[file + 1]
        return self._bytes[file + 1]

    def to_newest(self, file: int) -> None:
        """Make a file in the queue the newest."""
        self._unlink(file + 1)
        self._between(file + 1, self._older[0], 0)

    def remember(self, file: int, n_bytes: int, limit_bytes: int) -> None:
        """Add a file as the newest, and take out the oldest while all have more than `limit_bytes`."""
        if n_bytes > limit_bytes:
            return
        while self.used_bytes + n_bytes > limit_bytes:
            self.remove(self.oldest)
        self.append(file, n_bytes)

    def _add(self, file: int, n_bytes: int, older: int, newer: int) -> None:
        missing = file + 2 - len(self._older)
        if missing > 0:
            self._older.extend([_ABSENT] * missing)
            self._newer.extend([_ABSENT] * missing)
            self._bytes.extend([0] * missing)
        self._between(file + 1, older, newer)
        self._bytes[file + 1] = n_bytes
        self.n_files += 1
        self.used_bytes += n_bytes

    def _between(self, place: int, older: int, newer: int) -> None:
        self._older[place], self._newer[place] = older, newer
        self._newer[older] = self._older[newer] = place

    def _unlink(self, place: int) -> None:
        older, newer = self._older[place], self._newer[place]
        self._newer[older], self._older[newer] = newer, older
        self._older[place] = _ABSENT
