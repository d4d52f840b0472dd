"""The rows of features at one time, computed from all reads and files with lists and loops.

Written from the docstrings of `features.stream.region`, `facts` and `events`; columns: `stream_oracle`.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import stream_oracle
from stream_oracle import Known, life_of

US = 1_000_000
NEVER = math.inf


def usable_s(read: Any, cycle_s: int) -> int:
    """The first decision time that a read counts from."""
    return max(_after(read.at, cycle_s), _after(read.known, cycle_s))


def reader_of(read: Any) -> int:
    """The task's even number, else the user's odd one, else 0."""
    for name, offset in ((read.task, 2), (read.user, 1)):
        if name is not None:
            hashed = pd.util.hash_array(np.array([name], object), categorize=False)
            return 2 * (int(hashed[0]) >> 13) + offset
    return 0


def in_order(reads: Iterable[Any], cycle_s: int) -> list[Any]:
    """The reads as they are counted."""

    def text(value: object) -> str:
        return "" if value is None else str(value)

    return sorted(
        reads,
        key=lambda r: (
            *(usable_s(r, cycle_s), r.at, r.did.encode(), reader_of(r)),
            *(text(value) for value in (r.n, r.size, r.campaign, r.tier, r.dataset)),
        ),
    )


def features_of(worlds: Any, as_of_s: int) -> dict[str, dict[str, Any]]:
    """The row of every candidate, by did; numbers that are not known are NaN."""
    spec = worlds.spec
    every = in_order(worlds.reads, spec.cycle_s)
    reads = [r for r in every if usable_s(r, spec.cycle_s) <= as_of_s]
    files = {f.did: f for f in worlds.files}
    home = _homes(every, files, spec.cycle_s)
    counted = _counted(reads, home, spec)
    lives = {name: life_of(some, spec.history_s) for name, some in counted.items()}
    last_s = {name: max(r.at_s for r in life) for name, life in lives.items()}
    of_file = {r.file: name for name, life in lives.items() for r in life}
    read = {r.did for r in reads}
    listed = {
        f.did
        for f in worlds.files
        if max(_after(f.known, spec.cycle_s), _after(f.created or 0, spec.cycle_s)) <= as_of_s
        and (f.dataset is not None or f.did in read)
    }
    in_use = {name for name, at in last_s.items() if at >= as_of_s - spec.active_dataset_s}
    alive = {name for name, at in last_s.items() if at >= as_of_s - spec.history_s}
    dids, rank = [], {}
    for did, name in sorted(of_file.items(), key=lambda pair: pair[0].encode()):
        last = max(r.at_s for r in lives[name] if r.file == did)
        if name in alive and (last >= as_of_s - spec.candidate_s or name in in_use):
            dids.append(did)
    for name in in_use:
        waiting = [did for did in listed if home.get(did) == name and did not in of_file]
        for place, did in enumerate(sorted(waiting, key=str.encode)):
            rank[did] = place
            if place < spec.unread_per_dataset:
                dids.append(did)
    at = _At(spec, as_of_s, every, files, home, listed, rank)
    return {did: at.row(did, counted[home[did]]) for did in dids}


@dataclasses.dataclass(frozen=True)
class _At:
    """All that the rows of one time are made from."""

    spec: Any
    as_of_s: int
    every: Sequence[Any]
    files: dict[str, Any]
    home: dict[str, tuple[str, str]]
    listed: set[str]
    rank: dict[str, int]

    def row(self, did: str, counted: Sequence[Any]) -> dict[str, Any]:
        """The row of a file; `counted`: reads of its dataset."""
        size, created = self.fact("size", did), self.fact("created", did)
        dids = sorted({did, *(r.file for r in counted)})
        numbers = {did: k for k, did in enumerate(dids)}
        kind, name = self.home[did]
        known = Known(
            dataset=[0] * len(dids),
            tier=[-1] * len(dids),
            size=[-1 if size is None else size] * len(dids),
            rank=[self.rank.get(did, -1) for did in dids],
            n_files=[sum(self.home.get(did) == (kind, name) for did in self.listed)],
            history_s=self.spec.history_s,
        )
        reads = [dataclasses.replace(r, file=numbers[r.file]) for r in counted]
        return stream_oracle.row(reads, numbers[did], float(self.as_of_s), known) | {
            "dataset": name if kind == "named" else None,
            "tier": self.fact("tier", did),
            "campaign": self.fact("campaign", did),
            "age_s": math.nan if created is None else max(0, self.as_of_s - max(0, created // US)),
        }

    def fact(self, name: str, did: str) -> Any:
        """The first statement that may be used; the catalogue goes first of those of the same time.

        Of sizes it goes first whenever it is known, and 0 is none.
        """
        cycle_s, stated = self.spec.cycle_s, []
        if did in self.files:
            stated.append((_after(self.files[did].known, cycle_s), 0, getattr(self.files[did], name)))
        if name != "created":
            own = [r for r in self.every if r.did == did]
            stated += [(usable_s(r, cycle_s), 1 + k, getattr(r, name)) for k, r in enumerate(own)]
        known = [value for value in stated if value[2] is not None and (name != "size" or value[2] > 0)]
        if name == "size":
            known = [value for value in known if value[0] <= self.as_of_s]
            known = [value for value in known if value[1] == 0] or known
        first = min(known, default=None)
        return first[2] if first is not None and first[0] <= self.as_of_s else None


def _counted(reads: Sequence[Any], home: dict[str, tuple[str, str]], spec: Any) -> dict[Any, list[Any]]:
    """The reads of each dataset, with names for files."""
    by_dataset: dict[Any, list[Any]] = {}
    for r in reads:
        read = stream_oracle.Read(
            r.at / US, r.did, reader_of(r), float(r.n), float(usable_s(r, spec.cycle_s))
        )
        by_dataset.setdefault(home[r.did], []).append(read)
    return by_dataset


def _homes(every: Sequence[Any], files: dict[str, Any], cycle_s: int) -> dict[str, tuple[str, str]]:
    """The dataset of each file: ("named", name), or ("alone", did)."""
    home = {}
    for did in {r.did for r in every} | files.keys():
        own = [r for r in every if r.did == did]
        first_s = usable_s(own[0], cycle_s) if own else NEVER
        file = files.get(did)
        stated = sorted(
            (r.dataset for r in own if r.dataset is not None and usable_s(r, cycle_s) == first_s),
            key=str.encode,
        )
        if file is not None and file.dataset is not None and _after(file.known, cycle_s) <= first_s:
            home[did] = ("named", file.dataset)
        elif stated:
            home[did] = ("named", stated[0])
        elif own:
            home[did] = ("alone", did)
    return home


def _after(at: int, cycle_s: int) -> int:
    return (at // (cycle_s * US) + 1) * cycle_s
