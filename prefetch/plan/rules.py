"""Which files a plan is about: the operator's rules, the control group, and each server's own files."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import ConfigError
from replay.config import refused
from replay.federation.ranges import OwnerArray, covered, layout_of

TEST = "test"
"""The action of the rule about files that only monitoring reads."""


class Treatment(enum.IntEnum):
    """What a plan does with a file: judge it by value, leave it to the cache, pin it, or keep it out.

    `TEST`: it is never placed, and goes first when room is needed.
    """

    PLANNED = 0
    EXCLUDED = 1
    PIN = 2
    NEVER = 3
    TEST = 4


_CODES = {
    "include": Treatment.PLANNED,
    "exclude": Treatment.EXCLUDED,
    "pin": Treatment.PIN,
    "never": Treatment.NEVER,
    TEST: Treatment.TEST,
}
_USER = re.compile(r"[A-Za-z0-9._*?-]{1,64}")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What is done with files that match one pattern of every kind that is given.

    `action`: include, exclude, pin (while it is on disk), never or test. In patterns `*` is any text and `?`
    any character; `names` match without scope, `users` the owner of a user or group area. Raises ConfigError.
    """

    action: str
    tiers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.action not in _CODES:
            raise ConfigError("plan.rules", f"no action {self.action!r}; give one of {', '.join(_CODES)}")
        if not (self.tiers or self.names or self.users):
            raise ConfigError(
                "plan.rules", f"a rule to {self.action} names nothing; give tiers, names or users"
            )
        for user in self.users:
            if not _USER.fullmatch(user):
                raise ConfigError("plan.rules", f"{user!r} is no user; letters, digits and . _ - * ? only")

    def matches(self, dids: pa.StringArray, tiers: pa.StringArray) -> BoolArray:
        """Which of the files match the rule, bool[n]."""
        found: BoolArray = np.ones(len(dids), np.bool_)
        if self.tiers:
            found &= refused(tiers.fill_null(""), self.tiers, len(dids))
        if self.names:
            found &= refused(dids, self.names, len(dids))
        if self.users:
            found &= _in_areas(dids, self.users)
        return found

    @property
    def words(self) -> str:
        """The rule as an explanation shows it, for example `pin tier AOD`."""
        kinds = (("tier", self.tiers), ("name", self.names), ("user", self.users))
        wanted = " and ".join(f"{kind} {' or '.join(patterns)}" for kind, patterns in kinds if patterns)
        return f"{self.action} {wanted}"


def treatments(
    rules: tuple[Rule, ...], dids: pa.StringArray, tiers: pa.StringArray
) -> tuple[IntArray, IntArray]:
    """Codes of `Treatment` and the place of the rule that decided (-1: none), int64[n] each.

    The first rule that matches counts. Where a rule includes files, a file that no rule matches is excluded.
    """
    rule: IntArray = np.full(len(dids), -1, np.int64)
    for place, one in enumerate(rules):
        rule[(rule < 0) & one.matches(dids, tiers)] = place
    if not rules:
        return np.zeros(len(dids), np.int64), rule
    codes = np.array([int(_CODES[one.action]) for one in rules], np.int64)
    rest = Treatment.EXCLUDED if any(one.action == "include" for one in rules) else Treatment.PLANNED
    return np.where(rule >= 0, codes[rule], int(rest)), rule


def _in_areas(dids: pa.StringArray, users: tuple[str, ...]) -> BoolArray:
    """Files below /store/user/NAME or /store/group/NAME, or of scope user.NAME or group.NAME."""
    areas = [f"*/store/{kind}/{user}/*" for kind in ("user", "group") for user in users]
    scopes = [f"{kind}.{user}:*" for kind in ("user", "group") for user in users]
    scope = pc.struct_field(pc.extract_regex(dids, r"^(?P<scope>[^:/]*):"), "scope").fill_null("")
    below: BoolArray = refused(dids, areas, len(dids))
    owned: BoolArray = refused(pc.binary_join_element_wise(scope, "", ":"), scopes, len(dids))
    return below | owned


_KEY = "cachecastcontrol"
"""16 characters. Never change them: outcomes are compared with the same group for years."""


def is_control(dids: Sequence[str], share: float) -> BoolArray:
    """Which of `dids` (scope:name) are in the control group, bool[n]: a hash chooses about `share` of all."""
    import pandas as pd  # noqa: PLC0415  settings import this module, and every command waits for them

    hashed = pd.util.hash_array(np.asarray(dids, dtype=object), hash_key=_KEY, categorize=False)
    chosen: BoolArray = hashed < np.uint64(min(int(share * 2**64), 2**64 - 1))
    return chosen


def owners(
    names: Iterable[str], capacities: Mapping[str, float], serving: Collection[str] | None = None
) -> OwnerArray:
    """The server at which Rucio looks for each of `names`; `capacities`: bytes of all servers.

    `serving`: those that take part now (None: all); they stand in for the others. "" if none does.
    """
    layout, known = layout_of(capacities), list(names)
    if serving is not None:
        layout = covered(layout, capacities, serving)
    return layout.owners_of(known) if layout.ranges else np.full(len(known), "", np.object_)


def belongs(
    names: Iterable[str], capacities: Mapping[str, float], server: str, serving: Collection[str] | None = None
) -> BoolArray:
    """Whether Rucio looks for each of `names` at `server`, bool[n]; else as `owners`."""
    mine: BoolArray = owners(names, capacities, serving) == server
    return mine
