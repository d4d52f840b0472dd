"""Removes from a table what no reader needs."""

import itertools
import math
import re
import time
from contextlib import suppress
from typing import Final

from features.common.times import DAY_S
from features.schema import Table
from jobs.ground.store.commits import COMMITS, commit_name, commit_numbers, folders_of, load
from jobs.ground.store.filesystems import Store

USED_WITHIN_S: Final = 2.0 * DAY_S
"""The longest time that a reader works with a snapshot, and a writer pauses while it writes a folder."""
_MOST_REMOVED = 1000
"""Most commits, and most folders, that go at once: somebody waits for the commit before it."""
_DATA = re.compile(r"data-[0-9a-f]{32}")


def vacuumed(table: Table, store: Store, *, keep: int, grace_s: float) -> int:
    """Delete files that no reader needs; returns the number of data folders deleted.

    Kept are the last `keep` commits, commits superseded less than `grace_s` ago, the files that they
    name, and folders younger than `grace_s`, which a writer may still use.
    """
    if not (numbers := commit_numbers(store)):
        return 0
    newest_s = store.modified_s(commit_name(numbers[-1]))
    # Our clock may be ahead, and the storage's have been: it dates all that is looked at.
    oldest_s = min(newest_s, time.time()) - grace_s

    def modified_s(name: str) -> float:
        try:
            return store.modified_s(name)
        except FileNotFoundError:  # another process has vacuumed it
            return math.inf

    superseded, older = list[int](), numbers[: 1 - keep] if keep > 1 else numbers
    for number, successor in itertools.pairwise(older[:_MOST_REMOVED]):
        superseded.append(number)
        at_s = modified_s(commit_name(successor))
        if oldest_s <= at_s <= newest_s:
            break
        if at_s < oldest_s:  # or its date is wrong, as the newest was made after it
            for name in map(commit_name, superseded):
                store.remove(name)
            superseded.clear()
    current = set[str]()
    with suppress(FileNotFoundError):
        current = folders_of(load(table, store, numbers[-1]).partitions)
    others = (name for name in store.names() if _DATA.fullmatch(name) and name not in current)
    doomed = set(itertools.islice((n for n in others if modified_s(n) < oldest_s), _MOST_REMOVED))
    for number in commit_numbers(store) if doomed else ():
        with suppress(FileNotFoundError):
            doomed -= folders_of(load(table, store, number).partitions)
    drafts = [f"{COMMITS}/{name}" for name in store.names(COMMITS) if name.endswith(".draft")]
    for name in [*doomed, *(name for name in drafts if modified_s(name) < oldest_s)]:
        store.remove(name)
    return len(doomed)
