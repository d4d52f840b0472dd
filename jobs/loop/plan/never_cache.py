"""The site's rules of files never to cache, as a file for the cache's decision library."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.common import files
from features.common.errors import InputError
from jobs.ground.settings.tree import Settings
from prefetch.plan.rules import LIBRARY, blacklist

_HEAD = (
    "# Made by `cachecast never-cache` from [plan] rules; make it again instead of editing it.",
    "# Read when xrootd starts: restart the cache after a change.",
)


@dataclasses.dataclass(frozen=True)
class NeverCache:
    """Summary of the file. `left_out`: rules that it cannot express, and why.

    `configure`: line for the server's configuration; `takes_effect`: when the rules apply.
    """

    cache: str
    file: str
    rules: int
    lines: int
    left_out: tuple[str, ...]
    configure: str
    takes_effect: str


def run(settings: Settings, *, cache: str, out: Path) -> NeverCache:
    """Write the blacklist of a cache to `out`, atomically. Raises ConfigError, InputError."""
    if settings.cache(cache).kind != "xcache":
        raise InputError(
            f"cache {cache!r} is a folder, which has no decision library; its plans obey the rules"
        )
    made = blacklist([configured.rule for configured in settings.plan.rules])
    place = out.absolute()
    try:
        # The cache's server reads it, as another account.
        files.write(place, "\n".join([*_HEAD, *made.lines, ""]), mode=0o644)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another --out") from None
    return NeverCache(
        cache=cache,
        file=str(place),
        rules=made.n_rules,
        lines=len(made.lines),
        left_out=made.left_out,
        configure=f"pfc.decisionlib {LIBRARY} {place}",
        takes_effect="when xrootd starts: restart the cache",
    )
