"""Delete the collector's captures that are in the tables, to make room for new ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jobs.ingest.pull_input import Mark
from jobs.ingest.sources.local import local_path

_COLLECTORS = "gstream-*.capture"


class Removed(NamedTuple):
    """Numbers of captures deleted, and of those that this account may not delete."""

    n_removed: int
    n_not_removed: int


def remove(taken: Iterable[Mark], *, before_s: int) -> Removed:
    """Delete the collector's captures among `taken` that last changed before `before_s` (since 1970)."""
    n_removed = n_not_removed = 0
    for mark in taken:
        path = local_path(mark.input)
        if not path.match(_COLLECTORS) or mark.modified_at.timestamp() >= before_s:
            continue
        try:
            path.unlink(missing_ok=True)
            n_removed += 1
        except OSError:
            n_not_removed += 1
    return Removed(n_removed, n_not_removed)
