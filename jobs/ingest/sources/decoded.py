"""Sources that are decoded in this process: files that only make sense one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from features.common.input_files import InputFile
from jobs.ingest.sources.site import Site
from jobs.ingest.sources.workspace import Workspace

Earlier = Callable[[str, str], Sequence[pa.Table]]
"""The earlier accesses of a source on the days (`2026-03-01`) from … to, with their `day`."""


class Decode(Protocol):
    """Adds the rows of the files at `places` to a workspace; returns the records that the source says are
    missing. `earlier` is for sources whose records come in two parts. Raises InputError.
    """

    def __call__(
        self, space: Workspace, places: Sequence[InputFile], *, site: Site, earlier: Earlier
    ) -> int: ...
