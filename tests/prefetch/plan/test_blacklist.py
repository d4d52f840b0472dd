"""The blacklist against the rules it is made from, by the C library's own fnmatch, as XRootD calls it."""

from __future__ import annotations

import ctypes
import functools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.common.names import parse_name
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import dids_of
from prefetch.plan.rules import DEPTH, Rule, Treatment, blacklist, treatments
from prefetch.target import Held

FNM_PATHNAME = 1
LIBC = ctypes.CDLL(None)

CMS = "/store/mc/Run3Summer22/TTto2L2Nu/AODSIM/130X-v1/2810000/f.root"
ATLAS = "/atlas/rucio/mc23_13p6TeV/cd/59/AOD.1._2.pool.root.1"
PATHS = [
    CMS,
    f"/eos/cms{CMS}",
    CMS.replace("AODSIM", "RAW"),
    "/store/results/top/Run3/TT/AODSIM/v1/f.root",
    "/store/mc/AODSIM/f.root",
    "/store/user/alice/f.root",
    "/store/user/alice/deep/er/AODSIM/x/f.root",
    "/store/group/top/x/f.root",
    "/store/unmerged/a/b/AODSIM/c/d/e/f/g/h.root",
    ATLAS,
    "/atlas/rucio/user/alice/7b/35/panda.um.user.alice.1.log.tgz",
    "/rucio/panda/64/3c/panda.um.x.root",
    "/a/[odd]\\name?.root",
]


def barred(lines: tuple[str, ...], path: str) -> bool:
    return any(LIBC.fnmatch(line.encode(), path.encode(), FNM_PATHNAME) == 0 for line in lines)


@functools.cache
def did_of(path: str) -> str:
    if "?" in path or "//" in path:
        return path  # as no file in a cache is called
    return dids_of(Tables("/nowhere"), [Held(path, 1, 1, True, 1, False)], {})[path]


def never(path: str, *rules: Rule) -> bool:
    """By the rules, of the DID behind a path."""
    codes, _ = treatments(rules, pa.array([did_of(path)]), pa.array([parse_name(path).tier], pa.string()))
    return int(codes[0]) == Treatment.NEVER


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "rule",
    [
        Rule("never", tiers=("AODSIM",)),
        Rule("never", tiers=("AOD",)),
        Rule("never", tiers=("AOD*", "RAW")),
        Rule("never", users=("alice",)),
        Rule("never", users=("al*", "t?p")),
        Rule("never", names=("/store/mc/*",)),
        Rule("never", names=("*/AODSIM/*",)),
        Rule("never", names=("/a/[odd]\\name?.root",)),
        Rule("never", names=("*",)),
    ],
)
def test_a_path_is_barred_as_the_rule_says(rule: Rule, path: str) -> None:
    made = blacklist([rule])
    assert (made.n_rules, made.left_out) == (1, ())
    assert barred(made.lines, path) == never(path, rule)


def test_names_of_files_and_scopes_find_rucios_paths() -> None:
    log, other = "/atlas/rucio/user/alice/99/9f/panda.um.log.tgz", "/store/panda/um/x.root"
    assert [barred(blacklist([Rule("never", names=("panda.um.*",))]).lines, p) for p in (log, other)] == [
        1,
        0,
    ]
    scoped = blacklist([Rule("never", names=("user.alice:panda.um.*",))]).lines
    assert barred(scoped, log) and not barred(scoped, log.replace("alice", "bob"))


TEXT = st.text("ab/*[", min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(TEXT, st.text("ab/[", max_size=10))
def test_a_star_crosses_slashes_as_in_a_rule(pattern: str, path: str) -> None:
    rule = Rule("never", names=(f"/{pattern}",))
    assert barred(blacklist([rule]).lines, f"/{path}") == never(f"/{path}", rule)


def test_what_a_list_cannot_say_is_told() -> None:
    first, late = Rule("never", names=("/x/*",)), Rule("never", names=("/y/*",))
    made = blacklist([first, Rule("pin", tiers=("AOD",)), late])
    assert made.n_rules == 1 and not barred(made.lines, "/y/f")
    assert made.left_out == (
        "never name /y/*: the rule before it (pin tier AOD) may take files from it; "
        "put rules to never cache first",
    )
    both = blacklist([Rule("never", tiers=("AOD",), users=("a",)), Rule("never", names=("*a*b*c*d*e*",))])
    assert both.lines == () and len(both.left_out) == 2
    assert all(line.count("/") <= DEPTH for line in blacklist([Rule("never", tiers=("AOD",))]).lines)
