"""A site's rules to never cache, written for a cache's own decision library."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.errors import InputError
from jobs.settings.tree import Settings
from prefetch.plan.blacklist import LIBRARY, blacklist

_HEAD = (
    "# Made by `cachecast never-cache` from [plan] rules; make it again instead of editing it.",
    "# Read when xrootd starts: restart the cache after a change.",
)


@dataclasses.dataclass(frozen=True)
class NeverCache:
    """What was written. `left_out`: rules that such a file cannot say, and why.

    `configure`: the line that the server's configuration needs; `takes_effect`: when.
    """

    cache: str
    file: str
    rules: int
    lines: int
    left_out: tuple[str, ...]
    configure: str
    takes_effect: str


def run(settings: Settings, *, cache: str, out: Path) -> NeverCache:
    """Write the blacklist of a cache to `out`, whole or not at all. Raises ConfigError, InputError."""
    if settings.cache(cache).kind != "xcache":
        raise InputError(
            f"cache {cache!r} is a folder, which has no decision library; its plans obey the rules"
        )
    made = blacklist([one.rule for one in settings.plan.rules])
    place = out.absolute()
    draft = place.with_name(f".{place.name}.draft")
    try:
        draft.write_text("\n".join([*_HEAD, *made.lines, ""]), encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(place)
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
