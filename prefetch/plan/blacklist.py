"""A site's rules as XRootD's blacklist: files that a cache never admits, whoever asks for them.

`libXrdBlacklistDecision` reads a file of patterns, one per line, when the server starts, and matches paths by
fnmatch(3) with FNM_PATHNAME: there `*` and `?` match no slash. In rules `*` does, so a pattern of a rule
becomes one line for each depth; `?` stays as it is. A line that begins with `#` is a pattern too, and matches
no path.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

from prefetch.plan.rules import Rule

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
    """Lines for the library, and rules that it cannot express.

    `n_rules`: rules that the lines express; `left_out`: the others, each with the reason.
    """

    lines: tuple[str, ...]
    n_rules: int
    left_out: tuple[str, ...]


def blacklist(rules: Sequence[Rule]) -> Blacklist:
    """The rules with the action `never` as lines.

    A list without exceptions cannot express all of them. Left out is a rule behind one of another action,
    which may except files from it, and a rule with several kinds of patterns. The plan still evicts those
    files.
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
    if any(_n_lines(pattern) > MOST_LINES for pattern in rule.names):
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
    """Files at every depth below `folder`."""
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


def _n_lines(pattern: str) -> int:
    return sum(1 for _ in itertools.islice(_of_name(pattern), MOST_LINES + 1))


def _plain(text: str) -> str:
    """`text` with what fnmatch would take for more than it is escaped; `*` and `?` stay."""
    return "".join(f"\\{letter}" if letter in "[]\\" else letter for letter in text)
