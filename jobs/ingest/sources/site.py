"""The site's settings that sources depend on."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Site:
    """`salt` hashes users (empty: no users). `day` (`2026-03-01`) dates records that do not say when they
    were made. `caches`: hosts and domains of caches, to tell a cache's own reads from those of jobs.
    `storages`: patterns of the storages that count where a source names one (none: all count).
    `test_files`: patterns of names that only monitoring reads.
    """

    salt: str = ""
    day: str = ""
    caches: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
