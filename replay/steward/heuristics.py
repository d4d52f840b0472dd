"""Orders of eviction without a model: LRU, S3-FIFO, and LRU by dataset."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from features.common.arrays import BoolArray
from replay.policies.s3fifo import GHOST_SHARE, HITS_TO_MOVE, MOST_HITS, SMALL_SHARE
from replay.steward.order import ByReads

_ABSENT = -1


class Queue:
    """Files from the oldest to the newest, with their bytes; any can leave. 16 bytes per known file.

    Numbers of files are 0 or more.
    """

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

    def insert_after(self, older: int, file: int, n_bytes: int) -> None:
        """Add a file that is absent as the next newer one than `older`."""
        self._add(file, n_bytes, older + 1, self._newer[older + 1])

    def neighbours(self, file: int) -> tuple[int, int]:
        """The next older and the next newer file of one in the queue; -1: there is none."""
        return self._older[file + 1] - 1, self._newer[file + 1] - 1

    def to_newest(self, oldest: int, newest: int) -> None:
        """Make a run of neighbours in the queue, from its oldest file to its newest, the newest."""
        first, last = oldest + 1, newest + 1
        older, newer = self._older[first], self._newer[last]
        self._newer[older], self._older[newer] = newer, older
        before = self._older[0]
        self._newer[before], self._older[first] = first, before
        self._newer[last], self._older[0] = 0, last

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


class Lru(ByReads):
    """The longest unread file goes first."""

    following = "lru"

    def __init__(self) -> None:
        self._queue = Queue()

    @property
    def oldest(self) -> int | None:
        """The longest unread file; None: there is none."""
        return self._queue.oldest if self._queue.n_files else None

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """The file is the youngest now."""
        if file in self._queue:
            self._queue.to_newest(file, file)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file is the youngest."""
        if file in self._queue:
            self._queue.resize(file, n_bytes)
        else:
            self._queue.append(file, n_bytes)

    def removed(self, file: int) -> None:
        """Forget the file."""
        if file in self._queue:
            self._queue.remove(file)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return self._queue.bytes_of(file) if file in self._queue else None

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """The oldest files."""
        chosen: list[int] = []
        if n_bytes <= 0:
            return chosen
        for file in self._queue:
            if not spare[file]:
                chosen.append(file)
                n_bytes -= self._queue.bytes_of(file)
                if n_bytes <= 0:
                    break
        return chosen


TURNS = MOST_HITS + 2
"""A file is met at most so many times until it goes, unless it is spared."""


class S3Fifo(ByReads):
    """Files with two hits in the small queue move to the main one; so do ghosts that come again."""

    following = "s3fifo"

    def __init__(self, capacity_bytes: int) -> None:
        self._small_bytes = int(capacity_bytes * SMALL_SHARE)
        self._main_bytes = capacity_bytes - self._small_bytes
        self._ghost_bytes = int(capacity_bytes * GHOST_SHARE)
        self._small, self._main, self._ghosts = Queue(), Queue(), Queue()
        self._hits = bytearray()
        self._has_evicted = False

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """A file without hits."""
        self._hits.append(0)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """Count a hit of a file on disk."""
        if is_held:
            self._hits[file] = min(MOST_HITS, self._hits[file] + 1)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file enters the small queue; a ghost, and what comes to an empty cache, the main one."""
        for queue in (self._small, self._main):
            if file in queue:
                queue.resize(file, n_bytes)
                return
        self._hits[file] = 0
        is_ghost = file in self._ghosts
        if is_ghost:
            self._ghosts.remove(file)
        fills = not self._has_evicted and self._small.used_bytes >= self._small_bytes
        (self._main if is_ghost or fills else self._small).append(file, n_bytes)

    def removed(self, file: int) -> None:
        """Forget the file; one from the small queue leaves a ghost."""
        if file in self._main:
            self._main.remove(file)
        elif file in self._small:
            self._ghosts.remember(file, self._small.remove(file), self._ghost_bytes)

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return next((queue.bytes_of(file) for queue in (self._small, self._main) if file in queue), None)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """Files without enough hits from the front of the queue that has more than its share.

        Files that must stay move to the end of the main queue.
        """
        if n_bytes <= 0:
            return []
        self._has_evicted = True
        taken: list[tuple[Queue, int, int]] = []
        turns, n_spared = TURNS * (self._small.n_files + self._main.n_files), 0
        while n_bytes > 0 and turns > 0 and self._small.n_files + self._main.n_files:
            turns -= 1
            is_full = self._main.used_bytes > self._main_bytes and n_spared < self._main.n_files
            is_main = is_full or not self._small.n_files
            queue = self._main if is_main else self._small
            file = queue.oldest
            size = queue.remove(file)
            if spare[file]:
                self._main.append(file, size)
                n_spared += 1
            elif is_main and self._hits[file] > 0:
                self._hits[file] -= 1
                queue.append(file, size)
            elif self._hits[file] >= HITS_TO_MOVE:
                self._hits[file] = 0
                self._main.append(file, size)
            else:
                taken.append((queue, file, size))
                n_bytes -= size
        for queue, file, size in reversed(taken):
            queue.put_back(file, size)
        return [file for _, file, _ in taken]


class DatasetLru(Lru):
    """Files of the longest unread dataset go first, among them the longest unread.

    The files of a dataset are neighbours in the queue.
    """

    following = "dataset-lru"

    def __init__(self) -> None:
        super().__init__()
        self._dataset = array("i")
        # By dataset, its oldest and newest file on disk.
        self._oldest, self._newest = array("i"), array("i")

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """Note the file's dataset."""
        self._dataset.append(dataset)
        more = [_ABSENT] * (dataset + 1 - len(self._oldest))
        self._oldest.extend(more)
        self._newest.extend(more)

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """The dataset is the youngest now, and in it the file."""
        dataset = self._dataset[file]
        if self._oldest[dataset] == _ABSENT:
            return
        self._queue.to_newest(self._oldest[dataset], self._newest[dataset])
        if file in self._queue and file != self._newest[dataset]:
            if file == self._oldest[dataset]:
                self._oldest[dataset] = self._queue.neighbours(file)[1]
            self._queue.to_newest(file, file)
            self._newest[dataset] = file

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file is the youngest of its dataset; a dataset that had none is the youngest."""
        dataset = self._dataset[file]
        if file in self._queue:
            self._queue.resize(file, n_bytes)
            return
        if self._oldest[dataset] == _ABSENT:
            self._oldest[dataset] = file
            self._queue.append(file, n_bytes)
        else:
            self._queue.insert_after(self._newest[dataset], file, n_bytes)
        self._newest[dataset] = file

    def removed(self, file: int) -> None:
        """Forget the file."""
        if file not in self._queue:
            return
        dataset, (older, newer) = self._dataset[file], self._queue.neighbours(file)
        is_oldest, is_newest = file == self._oldest[dataset], file == self._newest[dataset]
        if is_oldest:
            self._oldest[dataset] = _ABSENT if is_newest else newer
        if is_newest:
            self._newest[dataset] = _ABSENT if is_oldest else older
        self._queue.remove(file)
