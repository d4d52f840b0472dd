"""What a site asks of plans: what they save, what they do with each file, and what a cache never admits."""

import dataclasses
import enum
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, IntArray
from features.common.errors import ConfigError
from replay.config import refused
from replay.ranges import OwnerArray, covered, layout_of

TEST = "test"
"""The action of the rule about files that only monitoring reads."""


class Objective(enum.StrEnum):
    """What a plan saves: bytes over the WAN, requests that wait for it, or CPU-hours of waiting jobs."""

    BYTES = "bytes"
    REQUESTS = "requests"
    CPU_HOURS = "cpu_hours"


class Treatment(enum.IntEnum):
    """What a plan does with a file: judges it by value, leaves it to the cache, pins it, or keeps it out.

    `TEST`: never placed, and evicted first when room is needed.
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
        matching: BoolArray = np.ones(len(dids), np.bool_)
        if self.tiers:
            matching &= refused(tiers.fill_null(""), self.tiers, len(dids))
        if self.names:
            matching &= refused(dids, self.names, len(dids))
        if self.users:
            matching &= _in_areas(dids, self.users)
        return matching

    @property
    def words(self) -> str:
        """The rule as an explanation shows it, for example `pin tier AOD`."""
        kinds = (("tier", self.tiers), ("name", self.names), ("user", self.users))
        patterns_by_kind = " and ".join(
            f"{kind} {' or '.join(patterns)}" for kind, patterns in kinds if patterns
        )
        return f"{self.action} {patterns_by_kind}"


def treatments(
    rules: tuple[Rule, ...], dids: pa.StringArray, tiers: pa.StringArray
) -> tuple[IntArray, IntArray]:
    """Codes of `Treatment` and the place of the rule that decided (-1: none), int64[n] each.

    The first rule that matches counts. Where a rule includes files, a file that no rule matches is excluded.
    """
    decided_by: IntArray = np.full(len(dids), -1, np.int64)
    for place, rule in enumerate(rules):
        decided_by[(decided_by < 0) & rule.matches(dids, tiers)] = place
    if not rules:
        return np.zeros(len(dids), np.int64), decided_by
    codes = np.array([int(_CODES[rule.action]) for rule in rules], np.int64)
    rest = Treatment.EXCLUDED if any(rule.action == "include" for rule in rules) else Treatment.PLANNED
    return np.where(decided_by >= 0, codes[decided_by], int(rest)), decided_by


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
    in_group: BoolArray = hashed < np.uint64(min(int(share * 2**64), 2**64 - 1))
    return in_group


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


DEPTH = 16
"""Most slashes of a path that a line is made for."""

MOST_LINES = 2000
"""Most lines of one pattern: a cache tries every line at every open."""

LIBRARY = "libXrdBlacklistDecision.so"

_CMS_KINDS = ("data", "mc", "hidata", "himc", "relval", "express", "generator", "unmerged")
_CMS_ROOTS = ("", "/eos/cms")
_ATLAS_PROJECTS = ("data", "mc", "valid", "hi")
_HASHED = "[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]"


@dataclasses.dataclass(frozen=True)
class Blacklist:
    """Lines for the library. `n_rules`: rules that they express; `left_out`: the others, with the reason."""

    lines: tuple[str, ...]
    n_rules: int
    left_out: tuple[str, ...]


def blacklist(rules: Sequence[Rule]) -> Blacklist:
    """The rules with the action `never` as lines of `LIBRARY`, which reads them when the server starts.

    It matches paths by fnmatch(3) with FNM_PATHNAME: there `*` and `?` match no slash. In rules `*` does, so
    a pattern becomes one line for each depth; `?` stays as it is.

    Lines know no exceptions: left out are rules after one of another action, which may except files from
    them, and rules with several kinds of patterns. The plan still evicts those files.
    """
    lines: dict[str, None] = {}
    left_out, n_rules = [], 0
    before: Rule | None = None
    for rule in rules:
        if rule.action != "never":
            before = before or rule
            continue
        fault = _fault(rule, before)
        if fault is None:
            n_rules += 1
            lines |= dict.fromkeys(_lines(rule))
        else:
            left_out.append(f"{rule.words}: {fault}")
    return Blacklist(tuple(lines), n_rules, tuple(left_out))


def _fault(rule: Rule, before: Rule | None) -> str | None:
    if before is not None:
        return f"the rule before it ({before.words}) may take files from it; put rules to never cache first"
    if sum(map(bool, (rule.tiers, rule.names, rule.users))) > 1:
        return "a line cannot ask for several kinds of patterns at once; write names that say both"
    if any(pattern.strip() != pattern or not pattern.isprintable() for pattern in rule.names):
        return "a name with white space at its edge, or a control character, cannot stand in a line"
    if any(next(itertools.islice(_of_name(name), MOST_LINES, None), None) for name in rule.names):
        return f"a name with so many * would become more than {MOST_LINES} lines; write it with fewer"
    return None


def _lines(rule: Rule) -> Iterator[str]:
    for name in rule.names:
        yield from _of_name(name)
    for user in rule.users:
        yield from _of_user(user)
    for tier in rule.tiers:
        yield from _of_tier(tier)


def _of_name(pattern: str) -> Iterator[str]:
    """A path; or a file's name, which has none of the path's slashes, with or without its scope."""
    scope, colon, name = pattern.rpartition(":")
    if pattern.startswith(("/", "*")) and not colon:
        for root in _CMS_ROOTS if pattern.startswith("/store/") else ("",):
            yield from _at_every_depth(root + pattern)
    elif name.startswith("/"):
        yield from _at_every_depth(name)
    else:
        folder = f"rucio/{_plain(scope.replace('.', '/'))}/{_HASHED}/" if colon else ""
        yield from (f"{above}/{folder}{_plain(name)}" for above in _folders())


def _of_user(user: str) -> Iterator[str]:
    for kind in ("user", "group"):
        for root in _CMS_ROOTS:
            yield from _below(f"{root}/store/{kind}/{_plain(user)}")
        yield from (f"{above}/rucio/{kind}/{_plain(user)}/{_HASHED}/*" for above in _folders())


def _of_tier(tier: str) -> Iterator[str]:
    for root, kind in itertools.product(_CMS_ROOTS, _CMS_KINDS):
        yield from _below(f"{root}/store/{kind}/*/*/{_plain(tier)}/*")
    for root in _CMS_ROOTS:
        yield from _below(f"{root}/store/results/*/*/*/{_plain(tier)}/*")
    for project, above in itertools.product(_ATLAS_PROJECTS, _folders()):
        yield from (
            f"{above}/rucio/{project}{n}_*/{_HASHED}/{_plain(tier)}.*" for n in ("[0-9]", "[0-9][0-9]")
        )


def _folders() -> Iterator[str]:
    """Folders of every depth that leaves room for a path of Rucio's below."""
    yield from ("/*" * n for n in range(DEPTH // 2))


def _below(folder: str) -> Iterator[str]:
    yield from (folder + "/*" * n for n in range(1, DEPTH - folder.count("/") + 1))


def _at_every_depth(pattern: str) -> Iterator[str]:
    """Lines that match what `pattern` does where its `*` match slashes, of paths of up to DEPTH slashes."""
    texts = [_plain(part) for part in re.split(r"\*+", pattern)]
    n_stars, spare = len(texts) - 1, DEPTH - pattern.count("/")
    for slashes in _shared(spare, n_stars):
        stars = ["/".join("*" * (n + 1)) for n in slashes]
        yield "".join(itertools.chain(*itertools.zip_longest(texts, stars, fillvalue="")))


def _shared(most: int, n: int) -> Iterator[tuple[int, ...]]:
    """Every way to give up to `most` things to `n` places."""
    if n == 0:
        yield ()
        return
    for first in range(max(0, most) + 1):
        yield from ((first, *rest) for rest in _shared(most - first, n - 1))


def _plain(text: str) -> str:
    """`text` with what fnmatch would take for more than it is escaped; `*` and `?` stay."""
    return "".join(f"\\{letter}" if letter in "[]\\" else letter for letter in text)
