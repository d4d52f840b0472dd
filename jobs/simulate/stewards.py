"""The policies of a replay that drive a steward, by name."""

from __future__ import annotations

from collections.abc import Sequence

from features.common.errors import ConfigError, InputError
from features.common.progress import Advance
from features.results import STEWARD
from jobs.store.traces import BESIDE, Beside
from replay.access_context import story
from replay.policies.learned import Order
from replay.policies.policy import PartPolicy, Policy
from replay.read import LoadedTrace
from replay.steward.delayed_cache import NO_DELAY, XCACHE
from replay.steward.policies import AHEAD, AUTO, LEARNED, STEWARDS, steward_policy


def steward_policies(
    names: Sequence[str],
    loaded: LoadedTrace,
    beside: Beside,
    capacities: Sequence[int],
    *,
    from_s: int | None,
    as_xcache: bool,
    block_bytes: int | None = None,
    on_progress: Advance,
) -> dict[str, Policy | PartPolicy]:
    """Those of `names` that drive a steward.

    What is learned is learned from the accesses before `from_s`, for `capacities`. `as_xcache`: with the
    delays of a live cache; `block_bytes`: files are fetched by it as far as they are read. Raises
    ConfigError, InputError, SchemaError.
    """
    wanted = [name for name in names if name in STEWARDS]
    if not wanted:
        return {}
    learns = any(STEWARDS[name] == LEARNED for name in wanted)
    if learns and from_s is None:
        what = f"{STEWARD} learns from the accesses before --from; give it, or choose {AUTO}"
        raise ConfigError("--policy", what)
    if block_bytes is not None and AHEAD in wanted:
        raise ConfigError("--policy", f"{AHEAD} fetches whole files; leave out --block-size")
    given = {role: name for role, name in beside._asdict().items() if name is not None}
    same = {role: role for role in BESIDE if role in loaded.details.column_names}
    told = story(loaded, **(same | given))
    learned: dict[int, list[Order]] = {}
    if from_s is not None and (learns or AUTO in wanted):
        from models.learning.order import Learning

        orders = Learning(loaded.trace, told, capacities).orders(from_s, on_progress)
        learned = dict(zip(capacities, orders, strict=True))
    if learns and not all(learned.values()):
        raise InputError(
            "there are too few accesses before --from to learn from; count from later, or choose " + AUTO
        )
    delays = XCACHE if as_xcache else NO_DELAY
    return {
        name: steward_policy(name, told, learned, delays=delays, block_bytes=block_bytes) for name in wanted
    }
