"""Policies of others: `file.py:function`, a function itself, or the entry points `cachecast.policies`.

What they answer is checked, since a hit that cannot be would count as one:

>>> import numpy as np
>>> from replay.policies import run_policy
>>> from replay.trace import Trace
>>> def lucky(trace, capacity_bytes, hit):
...     hit[:] = True
...     return 0
>>> trace = Trace(np.arange(2), np.array([0, 0]), np.array([10]))
>>> run_policy("lucky", trace, 20, policy=checked("lucky", lucky))
Traceback (most recent call last):
    ...
features.common.errors.ConfigError: policy: lucky has a hit at access 0, the first of its file
"""

import importlib.util
import sys
import traceback
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from features.common.arrays import BoolArray
from features.common.errors import CachecastError, ConfigError
from features.common.plugins import Group, blamed, in_a_line
from replay.comparison import BOUND, OBJECT_BOUND, PLAN
from replay.policies import canonical
from replay.policies.policy import PartPolicy, Policy, ServedWithPrefetch
from replay.steward.policies import STEWARDS
from replay.trace import Trace

PACKAGES = Group("policy", "cachecast.policies")
_OTHERS = (*STEWARDS, PLAN, BOUND, OBJECT_BOUND)
_MOST_CHARS = 64
_fault = partial(ConfigError, "policy")

OwnPolicies = dict[str, Policy | PartPolicy]


def own_policies(words: Sequence[object]) -> tuple[list[str], OwnPolicies]:
    """The policies' names, and those of them that are not ours, by name.

    A word is the name of a policy, `file.py:function`, or a function, which is called as Python calls it.
    Raises ConfigError.
    """
    names: list[str] = []
    own: OwnPolicies = {}
    for word in words:
        name, policy = _found(word)
        if policy is not None:
            if name in own:
                raise _fault(f"two policies are called {name}; rename one")
            own[name] = checked(name, policy)
        names.append(name)
    return names, own


def checked(name: str, policy: Any) -> Policy | PartPolicy:
    """The policy of others called `name`; it raises ConfigError where it fails, or answers what cannot be."""
    if isinstance(policy, PartPolicy) and not isinstance(policy, type):
        return policy
    if not callable(policy):
        raise _fault(f"{name} is no function, but of type {type(policy).__name__}")
    return partial(_serve, name, policy)


def _found(word: object) -> tuple[str, Any]:
    """The name of a policy, and what it is if it is not ours."""
    if not isinstance(word, str):
        name = getattr(word, "__name__", type(word).__name__)
        if not (callable(word) or isinstance(word, PartPolicy)):
            raise _fault(f"{word!r:.100} is neither a name nor a function; write for example lru")
        return _new(name), word
    path, colon, function = word.rpartition(":")
    if colon:
        return _new(function), _from_file(Path(path), function)
    try:
        return canonical(word, others=_OTHERS), None
    except ConfigError:
        entries = PACKAGES.of_others()
        name = canonical(word, others=(*_OTHERS, *(entry.name for entry in entries)))
        return name, PACKAGES.load([entry for entry in entries if entry.name == name])


def _new(name: str) -> str:
    """`name`, for a policy that is not ours. Raises ConfigError if it cannot be one, or ours has it."""
    if not name.isidentifier() or len(name) > _MOST_CHARS:
        raise _fault(
            f"{name[:_MOST_CHARS]!r} is no name for a policy; write file.py:function, or def a function"
        )
    try:
        canonical(name, others=_OTHERS)
    except ConfigError:
        return name
    raise _fault(f"cachecast has a policy {name}; rename yours")


def _from_file(path: Path, name: str) -> Any:
    """The function `name` of a Python file, which is run. Raises ConfigError."""
    if path.suffix != ".py" or not path.is_file():
        raise _fault(f"there is no Python file {path}; write file.py:function")
    spec = importlib.util.spec_from_file_location(f"policies_{zlib.crc32(bytes(path.resolve()))}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses ask for it there

    def fault(what: str) -> ConfigError:
        return _fault(f"{path} {what}")

    with blamed(fault, "cannot be loaded", PACKAGES.through):
        spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise fault(f"has no function {name}")
    return getattr(module, name)


def _serve(name: str, policy: Policy, trace: Trace, capacity_bytes: int, hit: BoolArray) -> Any:
    try:
        answer = policy(trace, capacity_bytes, hit)
    except CachecastError:
        raise
    except Exception as error:  # whatever the policy raises; its own trace is kept as the cause
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name} line {at.lineno}"
        raise _fault(f"{name} failed in {where}: {in_a_line(error)}") from error
    if isinstance(answer, ServedWithPrefetch):
        _check(name, trace, capacity_bytes, hit, answer.peak_bytes, fetches=True)
        return answer
    _check(name, trace, capacity_bytes, hit, answer, fetches=False)
    return int(answer)


def _check(
    name: str, trace: Trace, capacity_bytes: int, hit: BoolArray, peak: object, *, fetches: bool
) -> None:
    if not isinstance(peak, int | np.integer):
        raise _fault(
            f"{name} returned {peak!r:.60}; a policy returns the most bytes that it held, a whole number"
        )
    if not 0 <= peak <= capacity_bytes:
        raise _fault(f"{name} held {peak} bytes in a cache of {capacity_bytes}")
    too_large = np.flatnonzero(hit & (trace.size_bytes[trace.item] > capacity_bytes))
    if too_large.size:
        raise _fault(f"{name} has a hit at access {too_large[0]}, of a file larger than the cache")
    first = np.zeros(trace.n_accesses, np.bool_)
    first[np.unique(trace.item, return_index=True)[1]] = True
    if not fetches and (hit & first).any():
        at = int((hit & first).argmax())
        raise _fault(f"{name} has a hit at access {at}, the first of its file")
