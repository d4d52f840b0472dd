"""A cache's inventory as far as it can be believed, and how much a decision may take away by it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.errors import LimitError
from features.schema import CONTENTS
from features.times import as_of_label
from features.units import format_bytes
from jobs.caches.targets import target
from jobs.settings.tree import CacheSettings
from jobs.store.tables import Key, Tables, read_partitions
from prefetch.target import Held

_N_EXPECTED = 50


def believed(tables: Tables, cache: CacheSettings, *, at_s: int, told: Sequence[str] = ()) -> list[Held]:
    """What `cache` holds.

    Some names of its last inventory until `at_s`, and of `told`, are expected there; where they are not,
    the server is asked. Raises TargetUnavailable if it does not answer, or holds what the namespace lacks.
    """
    names: list[str] = last(tables, cache.name, at_s=at_s)["name"].to_pylist()
    return list(target(cache).inventory([*_some(names), *_some(told)]))


def last(tables: Tables, cache: str, *, at_s: int) -> pa.Table:
    """Names, dids and bytes of the cache's last inventory until `at_s`; empty if there is none."""
    head, until = tables.head(CONTENTS), as_of_label(at_s)
    keys = sorted((key for key in head.partitions if key[2] == cache and key[1] <= until), key=_moment)
    chosen = {key: head.partitions[key] for key in keys[-1:]}
    return read_partitions(head, chosen, ["name", "did", "bytes_on_disk"])


def check_loss(tables: Tables, cache: str, *, held_bytes: int, at_s: int, share: float) -> None:
    """Raise LimitError if `cache` lost more than `share` of its bytes since its last inventory."""
    known = _bytes_of(last(tables, cache, at_s=at_s))
    if known - held_bytes > share * known:
        raise LimitError(
            f"cache {cache!r} holds {format_bytes(held_bytes)}, and held {format_bytes(known)} at its last "
            f"inventory: more than [plan] lost_share = {share:g} is gone; look whether all its disks are "
            "mounted, and give --force if it is so"
        )


def check_evictions(evicted_bytes: int, held_bytes: int, *, cache: str, share: float) -> None:
    """Raise LimitError if a plan evicts more than `share` of what `cache` holds."""
    if evicted_bytes > share * held_bytes:
        raise LimitError(
            f"the plan evicts {format_bytes(evicted_bytes)} of the {format_bytes(held_bytes)} in cache "
            f"{cache!r}: more than [plan] evict_share = {share:g}; look at its rules, and give --force if "
            "that is meant"
        )


def check_planned_evictions(tables: Tables, plan: pa.Table, *, cache: str, at_s: int, share: float) -> None:
    """The same of `plan`, rows of the plans table, by the inventory that it was made from."""
    evicted = plan.filter(pc.equal(plan["action"], "evict"))["did"].combine_chunks()
    held = last(tables, cache, at_s=at_s)
    if len(evicted) and not held.num_rows:
        raise LimitError(
            f"the plan evicts {len(evicted)} files of cache {cache!r}, of which no inventory until "
            f"{as_of_label(at_s)} shows a file; plan again, or give --force if that is meant"
        )
    going = held.filter(pc.is_in(held["did"], value_set=evicted))
    check_evictions(_bytes_of(going), _bytes_of(held), cache=cache, share=share)


def check_withdrawals(n_removed: int, n_told: int, *, rse: str, share: float) -> None:
    """Raise LimitError if more than `share` of the replicas told at `rse` would be withdrawn."""
    if n_removed > share * n_told:
        raise LimitError(
            f"{n_removed} of {n_told} replicas at {rse} would be withdrawn: more than [rucio] withdraw_share "
            f"= {share:g}; look whether all the cache's disks are mounted, and give --force if it is so"
        )


def _some(names: Sequence[str]) -> Sequence[str]:
    """Some of `names`, from all over: names in order lie on the same disks."""
    return names[:: 1 + len(names) // _N_EXPECTED]


def _moment(key: Key) -> str:
    return key[1]


def _bytes_of(inventory: pa.Table) -> int:
    return int(pc.sum(inventory["bytes_on_disk"]).as_py() or 0)
