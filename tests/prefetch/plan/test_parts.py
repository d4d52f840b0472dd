"""What a plan is made of: rules and their blacklist, value, quiet hours, cycles, federations, controls."""

import ctypes
import functools

import numpy as np
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from name_oracle import parse_name

from jobs.ground.store.tables import Tables
from jobs.loop.ingest.known_names import dids_of
from prefetch.plan.forecasts import best_rate
from prefetch.plan.items import PlanLimits
from prefetch.plan.ranking import FEW, best_first, steady, within_groups
from prefetch.plan.rules import DEPTH, Rule, Treatment, blacklist, is_control, treatments
from prefetch.plan.scores import NEVER_S
from prefetch.plan.value import fitting_cycle_s
from prefetch.target import Held

DIDS = pa.array(
    [
        "cms:/store/mc/E/P/MINIAODSIM/v1/0/a.root",
        "cms:/store/user/alice/b.root",
        "cms:/store/group/top/c.root",
        "user.bob:d.root",
        "mc23:AOD.1.root",
        "panda:panda.um.x",
    ]
)
TIERS = pa.array(["MINIAODSIM", None, None, None, "AOD", None])


def treated(*rules: Rule) -> list[int]:
    return treatments(rules, DIDS, TIERS)[0].tolist()


def test_rules_go_by_tier_name_and_user_and_the_first_counts() -> None:
    assert treated() == [0] * 6
    no_panda, tests = Rule("never", names=("panda.um.*",)), Rule("test", names=("panda.*", "d.root"))
    assert treated(no_panda, Rule("pin", tiers=("MINIAOD*",))) == [2, 0, 0, 0, 0, 3]
    assert treated(Rule("exclude", users=("*",))) == [0, 1, 1, 1, 0, 0]
    assert treated(Rule("exclude", users=("alice", "bob"))) == [0, 1, 0, 1, 0, 0]
    assert treated(Rule("exclude", tiers=("AOD",)), Rule("include", tiers=("*AOD*",))) == [0, 1, 1, 1, 1, 1]
    assert treated(Rule("pin", tiers=("AOD",), names=("*.2.root",))) == [Treatment.PLANNED] * 6
    assert treated(tests) == [0, 0, 0, 4, 0, 4]
    assert treated(no_panda, Rule("include", tiers=("AOD",)), tests) == [1, 1, 1, 4, 0, 3]


@given(st.lists(st.integers(0, 7 * 86400), min_size=2, max_size=2, unique=True))
def test_perfect_knowledge_ranks_by_the_next_read(next_s: list[int]) -> None:
    horizons = (3600, 6 * 3600, 86400, 4 * 86400, 8 * 86400)
    knows = np.array([[n < h for n in next_s] for h in horizons], float)
    sooner, later = best_rate(knows, horizons)
    if next_s[0] > next_s[1]:
        sooner, later = later, sooner
    assert sooner >= later > 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0, 2.0, np.inf]), st.sampled_from([0, 1, NEVER_S]), st.booleans()
        )
    ),
    st.sampled_from([1, 2 * FEW]),
)
def test_files_of_equal_worth_go_by_their_last_use_and_then_by_number(
    files: list[tuple[float, int, bool]], times: int
) -> None:
    files = files * times
    key, last_use_s = np.array([file[0] for file in files]), np.array([file[1] for file in files], np.int64)
    item, mask = np.arange(len(files))[::-1], np.array([file[2] for file in files], np.bool_)
    order = best_first(key, last_use_s, item, mask).tolist()
    assert order == sorted(np.flatnonzero(mask), key=lambda k: (-key[k], -last_use_s[k], item[k]))


@given(st.integers(60, 90 * 86400), st.sampled_from([3600, 14400, 86400]))
def test_a_cycle_is_at_most_a_tenth_of_the_age_and_divides_the_grid(age_s: int, every_s: int) -> None:
    cycle_s = fitting_cycle_s(age_s, every_s)
    assert every_s % cycle_s == 0 and cycle_s >= 300
    assert cycle_s <= age_s / 10 or cycle_s == 300
    assert fitting_cycle_s(None, every_s) == every_s


@given(st.integers(0, 24), st.integers(0, 24), st.integers(0, 10**6), st.integers(1, 50))
def test_quiet_seconds_are_those_of_the_clock(begin: int, end: int, start_h: int, hours: int) -> None:
    limits = PlanLimits(hours * 3600, 0.1, 0.5, quiet_hours=(begin, end))
    if begin == end:
        expected = 0
    elif begin < end:
        expected = sum(begin <= h % 24 < end for h in range(start_h, start_h + hours))
    else:
        expected = sum(h % 24 >= begin or h % 24 < end for h in range(start_h, start_h + hours))
    assert limits.quiet_s(start_h * 3600) == expected * 3600


@given(st.integers(0, 2**32 - 1))
def test_groups_keep_their_limits_as_a_loop_would(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 40))
    order, size = rng.permutation(n), rng.integers(0, 9, n)
    group, limit = rng.integers(-1, 3, n), rng.integers(0, 40, 3)
    spent, expected = [0, 0, 0], []
    for i in order.tolist():
        if group[i] >= 0:
            spent[group[i]] += size[i]
        if group[i] < 0 or spent[group[i]] <= limit[group[i]]:
            expected.append(i)
    assert within_groups(order, size, group, limit).tolist() == expected


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12),
    st.integers(0, 60),
    st.sampled_from([0, 0.1, 0.5, 1.0]),
)
def test_a_placed_file_stays_until_its_rank_has_fallen_behind(
    files: list[tuple[int, bool]], limit: int, slack: float
) -> None:
    size = np.array([n for n, _ in files], np.int64)
    placed = np.array([was for _, was in files], bool)
    order = np.arange(size.size)[::-1]
    expected, down_to = [], 0
    for i in order.tolist():
        down_to += files[i][0]
        if down_to <= limit and (files[i][1] or down_to <= int(limit / (1 + slack))):
            expected.append(i)
    assert steady(order, size, placed, limit, slack).tolist() == expected


NAMES = [f"cms:/store/mc/f{i}.root" for i in range(20_000)]


def test_a_name_stays_in_its_group() -> None:
    group = is_control(NAMES, 0.05)
    assert (is_control(NAMES[::-1], 0.05)[::-1] == group).all()
    in_group = [name[-9:] for name, is_in in zip(NAMES[:160], group[:160], strict=True) if is_in]
    assert in_group == ["/f48.root", "/f79.root", "f102.root", "f141.root", "f156.root"]


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
    parsed = blacklist([rule])
    assert (parsed.n_rules, parsed.left_out) == (1, ())
    assert barred(parsed.lines, path) == never(path, rule)


def test_names_of_files_and_scopes_find_rucios_paths() -> None:
    log, other = "/atlas/rucio/user/alice/99/9f/panda.um.log.tgz", "/store/panda/um/x.root"
    panda = blacklist([Rule("never", names=("panda.um.*",))]).lines
    assert barred(panda, log) and not barred(panda, other)
    scoped = blacklist([Rule("never", names=("user.alice:panda.um.*",))]).lines
    assert barred(scoped, log) and not barred(scoped, log.replace("alice", "bob"))


TEXT = st.text("ab/*[", min_size=1, max_size=6)


@cases(60, thorough=3000)
@given(TEXT, st.text("ab/[", max_size=10))
def test_a_star_crosses_slashes_as_in_a_rule(pattern: str, path: str) -> None:
    rule = Rule("never", names=(f"/{pattern}",))
    assert barred(blacklist([rule]).lines, f"/{path}") == never(f"/{path}", rule)


def test_what_a_list_cannot_say_is_told() -> None:
    first, late = Rule("never", names=("/x/*",)), Rule("never", names=("/y/*",))
    parsed = blacklist([first, Rule("pin", tiers=("AOD",)), late])
    assert parsed.n_rules == 1 and not barred(parsed.lines, "/y/f")
    assert parsed.left_out == (
        "never name /y/*: the rule before it (pin tier AOD) may take files from it; "
        "put rules to never cache first",
    )
    both = blacklist([Rule("never", tiers=("AOD",), users=("a",)), Rule("never", names=("*a*b*c*d*e*",))])
    assert both.lines == () and len(both.left_out) == 2
    assert all(line.count("/") <= DEPTH for line in blacklist([Rule("never", tiers=("AOD",))]).lines)
