"""Policies that decide at each access, by name. To add one, write a module here and a line in `POLICIES`."""

import time
from collections.abc import Sequence

import numpy as np

from features.common.arrays import BoolArray
from features.common.errors import ConfigError
from replay.kernels.accesses import FETCHED, HIT_BYTES, HITS, REQUESTED, Tally, empty_tally, tally_of
from replay.policies.clairvoyant import clairvoyant, clairvoyant_bypass
from replay.policies.frequency import gdsf, lfu, lfu_da
from replay.policies.policy import PartPolicy, Policy, Served, ServedWithPrefetch
from replay.policies.queues import fifo, lru, s3fifo, sieve, two_queues
from replay.result import NOTHING_PLACED, Result, tallied
from replay.trace import Trace, window

__all__ = ["CLAIRVOYANTS", "POLICIES", "PartPolicy", "Policy", "canonical", "run_policy"]

POLICIES: dict[str, Policy] = {
    "lru": lru,
    "fifo": fifo,
    "lfu": lfu,
    "lfu-da": lfu_da,
    "sieve": sieve,
    "s3fifo": s3fifo,
    "2q": two_queues,
    "gdsf": gdsf,
    "clairvoyant": clairvoyant,
    "clairvoyant-bypass": clairvoyant_bypass,
}

CLAIRVOYANTS = ("clairvoyant", "clairvoyant-bypass")
"""Policies that know the future."""

_ALIASES = {"belady": "clairvoyant"}


def canonical(name: str, *, others: Sequence[str] = ()) -> str:
    """The name in `POLICIES` and `others` that equals `name` but for case, `-` and `_`.

    `belady` is `clairvoyant`. Raises ConfigError if there is none.
    """
    bare, known = _bare(name), (*POLICIES, *others)
    for candidate in known:
        if _bare(candidate) == bare:
            return candidate
    if bare in _ALIASES:
        return _ALIASES[bare]
    raise ConfigError("policy", f"no policy is called {name!r}; there are {', '.join(known)}")


def run_policy(
    name: str,
    trace: Trace,
    capacity_bytes: int,
    *,
    count_from_s: int | None = None,
    policy: Policy | PartPolicy | None = None,
    hit: BoolArray | None = None,
) -> Result:
    """Replay `trace` under the policy called `name`, counting from `count_from_s` (None: everything).

    `policy` is the policy of that name if it is not built in. Files are evicted at the access that needs the
    room; for watermarks and plans see `replay.engine`. A `PartPolicy` gives bytes of parts of files. The peak
    usage is that of the whole replay. `hit`: bool per access, all False; hits of whole files are marked.
    Raises ConfigError for an unknown name, InputError for an empty window.
    """
    if policy is None:
        name = canonical(name)
        policy = POLICIES[name]
    counted = window(trace, count_from_s)
    started, placed = time.perf_counter(), NOTHING_PLACED
    if isinstance(policy, PartPolicy):
        served = policy.serve(trace, capacity_bytes)
        seconds = time.perf_counter() - started
        peak_bytes, tally = served.peak_bytes, _tally_of_parts(trace, counted.first, served)
    else:
        hit = np.zeros(trace.n_accesses, np.bool_) if hit is None else hit
        done = policy(trace, capacity_bytes, hit)
        seconds = time.perf_counter() - started
        tally = tally_of(trace, hit[counted.first :])
        if isinstance(done, ServedWithPrefetch):
            peak_bytes, placed = done.peak_bytes, done.prefetched.placed(counted.count_from_s)
        else:
            peak_bytes = done
    return tallied(
        name,
        tally,
        capacity_bytes=capacity_bytes,
        count_from_s=counted.count_from_s,
        peak_usage_bytes=peak_bytes,
        seconds=seconds,
        placed=placed,
    )


def _tally_of_parts(trace: Trace, first: int, served: Served) -> Tally:
    tally = empty_tally(trace.time_s[first:])
    columns = {HITS: served.hit, REQUESTED: served.asked_bytes}
    columns |= {HIT_BYTES: served.hit_bytes, FETCHED: served.fetched_bytes}
    for column, amount in columns.items():
        tally.sums[:, column] = np.add.reduceat(amount[first:].astype(np.int64), tally.first[:-1])
    return tally


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
