"""What is known of the files' reads, as the learned order values them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from features.common.arrays import Ids, IntArray
from features.common.jit import bare
from features.stream.state import LAST, Files, Read, State, new_state, update
from replay.kernels.scored_files import Known, no_values

_Integers = TypeVar("_Integers", Ids, IntArray)

FEWEST = 1024
"""Files and datasets that there is room for at first; it doubles."""


class AccessHistory:
    """Files by number, from 0 in the order of `add`, and their reads. `known` is replaced when it grows."""

    def __init__(self) -> None:
        self.n_files = 0
        self._now_s = -np.inf
        files = Files(
            dataset=np.zeros(FEWEST, np.int32),
            tier=np.zeros(FEWEST, np.int32),
            size_bytes=np.full(FEWEST, -1, np.int64),
            rank=np.full(FEWEST, -1, np.int32),
            n_files=np.zeros(FEWEST, np.int64),
            history_s=np.inf,
        )
        self.known = Known(new_state(FEWEST, FEWEST), files, no_values(FEWEST))

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """Make a file known."""
        self._make_room(dataset)
        files, file = self.known.files, self.n_files
        files.dataset[file], files.tier[file], files.size_bytes[file] = dataset, tier, size_bytes
        self.n_files += 1

    def resize(self, file: int, size_bytes: int) -> None:
        """Correct a file's size."""
        self.known.files.size_bytes[file] = size_bytes

    def read(self, file: int, reader: int, at_s: float) -> None:
        """Count a read."""
        self._now_s = max(self._now_s, at_s)
        _note(self.known.state, self.known.files, Read(file, reader, 1.0, at_s, self._now_s))

    def last_read_s(self, file: int) -> float:
        """Time of the file's last read; NaN: never."""
        return float(self.known.state.file[file, LAST])

    def _make_room(self, dataset: int) -> None:
        """Room for one more file, and for `dataset`."""
        state, files, values = self.known
        room, d_room = files.dataset.size, files.n_files.size
        if self.n_files < room and dataset < d_room:
            return
        more = room if self.n_files == room else 0
        d_more = max(d_room, dataset + 1 - d_room) if dataset >= d_room else 0
        unread, unscored = new_state(more, d_more), no_values(more)
        self.known = Known(
            State(
                np.concatenate([state.file, unread.file]),
                np.concatenate([state.dataset, unread.dataset]),
                np.concatenate([state.passes, unread.passes]),
            ),
            files._replace(
                dataset=longer(files.dataset, more, 0),
                tier=longer(files.tier, more, 0),
                size_bytes=longer(files.size_bytes, more, -1),
                rank=longer(files.rank, more, -1),
                n_files=longer(files.n_files, d_more, 0),
            ),
            values._replace(
                value=np.concatenate([values.value, unscored.value]),
                at_s=np.concatenate([values.at_s, unscored.at_s]),
            ),
        )


def longer(values: _Integers, more: int, fill: int) -> _Integers:
    """`values` and `more` times `fill` behind them."""
    return np.concatenate([values, np.full(more, fill, values.dtype)])


@bare
def _note(state: State, files: Files, read: Read) -> None:
    update(state, files, read)
