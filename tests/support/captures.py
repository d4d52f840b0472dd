"""All that a capture holds, at once."""

import dataclasses
from pathlib import Path

from features.common.input_files import InputFile
from prefetch.xcache.events import FileClose
from prefetch.xcache.gstream import CaptureReader, Numberings


@dataclasses.dataclass(frozen=True)
class Capture:
    """The events of a capture in the order received, and its faults.

    `n_lost`: datagrams missing from the numbering; `n_malformed`: lines and frames that cannot be read.
    """

    records: tuple[FileClose, ...]
    n_lost: int
    n_malformed: int


def read_capture(path: Path | InputFile, numberings: Numberings | None = None) -> Capture:
    """Everything in the capture at `path`; see `CaptureReader`. Raises InputError if it cannot be read.

    `n_lost` counts what is missing in this file and between it and the files read before.
    """
    reader = CaptureReader(path, numberings)
    n_lost = reader.n_lost
    records = tuple(reader.poll())
    reader.close()
    return Capture(records, reader.n_lost - n_lost, reader.n_malformed)
