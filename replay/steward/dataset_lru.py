"""Least recently used by dataset (Chuchuk et al., PoS(ISGC2022)009): a read counts for its whole dataset."""

from __future__ import annotations

from array import array

from features.common.arrays import BoolArray


class DatasetLru:
    """Files of the longest unread dataset go first, among them the longest unread."""

    following = "dataset-lru"

    def __init__(self) -> None:
        self._dataset = array("i")
        # Datasets with files on disk, and the bytes of these, each from the oldest to the newest.
        self._held: dict[int, dict[int, int]] = {}

    def add(self, dataset: int, tier: int, size_bytes: int) -> None:
        """Note the file's dataset."""
        self._dataset.append(dataset)

    def resize(self, file: int, size_bytes: int) -> None:
        """Nothing: bytes on disk count."""

    def read(self, file: int, reader: int, at_s: float, *, is_held: bool) -> None:
        """The dataset is the youngest now, and in it the file."""
        dataset = self._dataset[file]
        files = self._held.pop(dataset, None)
        if files is not None:
            self._held[dataset] = files
            if file in files:
                files[file] = files.pop(file)

    def stored(self, file: int, n_bytes: int, at_s: float) -> None:
        """A new file is the youngest of its dataset; a dataset that had none is the youngest."""
        self._held.setdefault(self._dataset[file], {})[file] = n_bytes

    def removed(self, file: int) -> None:
        """Forget the file."""
        dataset = self._dataset[file]
        files = self._held.get(dataset, {})
        if files.pop(file, None) is not None and not files:
            del self._held[dataset]

    def bytes_on_disk(self, file: int) -> int | None:
        """See `EvictionOrder`."""
        return self._held.get(self._dataset[file], {}).get(file)

    def victims(self, n_bytes: int, now_s: float, spare: BoolArray) -> list[int]:
        """Files of the oldest datasets."""
        chosen: list[int] = []
        for files in self._held.values():
            for file, size in files.items():
                if n_bytes <= 0:
                    return chosen
                if not spare[file]:
                    chosen.append(file)
                    n_bytes -= size
        return chosen
