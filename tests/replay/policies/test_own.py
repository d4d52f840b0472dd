"""Policies of others: from a file, a function, a package; what cannot be is one line that names them."""

import sys
from pathlib import Path

import numpy as np
import pytest

from features.common.errors import ConfigError
from replay.policies import run_policy
from replay.policies.own import PACKAGES, checked, own_policies
from replay.trace import Trace

FIRST_COME = """
def first_come(trace, capacity_bytes, hit):
    held, used = set(), 0
    for i, file in enumerate(trace.item.tolist()):
        size = int(trace.size_bytes[file])
        hit[i] = file in held
        if file not in held and used + size <= capacity_bytes:
            held.add(file)
            used += size
    return used
"""
TRACE = Trace(np.arange(6), np.array([0, 1, 2, 0, 1, 2]), np.array([10, 10, 30]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FIRST_COME)
    return path


def test_a_function_of_a_file_is_replayed_by_its_name_beside_ours(file: Path) -> None:
    names, own = own_policies(["LRU", f"{file}:first_come"])
    assert names == ["lru", "first_come"]
    assert list(own) == ["first_come"]
    result = run_policy("first_come", TRACE, 20, policy=own["first_come"])
    assert (result.hits, result.peak_usage_bytes) == (2, 20)


def test_a_package_brings_a_policy_and_ours_of_that_name_counts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist_info = tmp_path / "mine-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(
        f"[{PACKAGES.name}]\nfirst-come = mine:first_come\nlru = mine:none\nlost = mine:none\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        names, own = own_policies(["First_Come", "lru"])
        assert (names, list(own)) == (["first-come", "lru"], ["first-come"])
        assert run_policy("first-come", TRACE, 20, policy=own["first-come"]).hits == 2
        with pytest.raises(ConfigError, match="'lost' of the package mine cannot be loaded: AttributeError"):
            own_policies(["lost"])
        with pytest.raises(ConfigError, match=r"no policy is called 'x'; there are lru, .*first-come"):
            own_policies(["x"])
    finally:
        sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("code", "word", "words"),
    [
        ("", "nowhere.py:mine", "there is no Python file nowhere.py"),
        ("", "FILE:mine", "FILE has no function mine"),
        ("def f(:\n", "FILE:f", "FILE cannot be loaded: SyntaxError"),
        ("raise SystemExit(3)", "FILE:f", "FILE cannot be loaded: SystemExit: 3"),
        ("lru = print", "FILE:lru", "cachecast has a policy lru; rename yours"),
        ("f = 3", "FILE:f", "f is no function, but of type int"),
        ("", "FILE:a b", "'a b' is no name for a policy"),
    ],
)
def test_what_is_no_policy_is_one_line(tmp_path: Path, code: str, word: str, words: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(code)
    with pytest.raises(ConfigError) as error:
        own_policies([word.replace("FILE", str(path))])
    assert words.replace("FILE", str(path)) in str(error.value)
    assert "\n" not in str(error.value)


def test_other_words_and_two_of_one_name_are_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="3 is neither a name nor a function"):
        own_policies([3])
    with pytest.raises(ConfigError, match="'<lambda>' is no name for a policy"):
        own_policies([lambda *_: 0])
    with pytest.raises(ConfigError, match="two policies are called first_come"):
        own_policies([f"{file}:first_come", f"{file}:first_come"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "bad returned None; a policy returns the most bytes that it held"),
        ("return 21", "bad held 21 bytes in a cache of 20"),
        ("hit[:1] = True; return 0", "bad has a hit at access 0, the first of its file"),
        ("hit[5] = True; return 0", "bad has a hit at access 5, of a file larger than the cache"),
        ("return 1 // 0", "bad failed in .* line 1: ZeroDivisionError"),
    ],
)
def test_an_answer_that_cannot_be_names_the_policy(body: str, words: str) -> None:
    space: dict[str, object] = {}
    exec(f"def bad(trace, capacity_bytes, hit): {body}", space)
    with pytest.raises(ConfigError, match=words):
        run_policy("bad", TRACE, 20, policy=checked("bad", space["bad"]))
