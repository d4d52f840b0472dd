"""Scores from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from features.common.errors import InputError, SchemaError
from replay.policies import run_policy, score_policies
from replay.read import read_scores, read_trace
from replay.trace import Trace


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    (tmp_path / "t.csv").write_text("time,id,size\n1,a,1\n2,b,1\n3,c,1\n4,a,1\n5,b,1\n6,c,1\n7,a,1\n")
    return read_trace(tmp_path / "t.csv").trace


def scores_file(tmp_path: Path, rows: str) -> Path:
    path = tmp_path / "scores.csv"
    path.write_text("as_of,item,score\n" + rows)
    return path


def test_scores_hold_from_their_moment_and_are_0_where_not_stated(tmp_path: Path, trace: Trace) -> None:
    scores = read_scores(scores_file(tmp_path, "5,b,0.5\n1,a,2\n5,stranger,9\n1,c,-1\n"), trace)
    assert scores.boundaries.tolist() == [1, 5]
    assert scores.at(0).tolist() == [2, 0, -1]
    assert scores.at(1).tolist() == [0, 0.5, 0]


def test_the_score_policy_keeps_what_the_file_says(tmp_path: Path, trace: Trace) -> None:
    scores = read_scores(scores_file(tmp_path, "0,a,9\n0,b,1\n0,c,0\n"), trace)
    made = score_policies(scores)
    result = run_policy("score", trace, 2, policy=made["score"])
    hit = np.zeros(trace.n_accesses, np.bool_)
    made["score"](trace, 2, hit)
    assert result.hits == hit.sum()
    assert hit[[3, 6]].all()  # both later reads of a


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("as_of,item\n1,a\n", SchemaError, "no column score; it has as_of, item"),
        ("as_of,item,score\n1,a,x\n", SchemaError, "score is .*; it must be numbers"),
        ("as_of,item,score\n1,a,1\n1,b,\n", InputError, "row 2 has no score"),
        ("as_of,item,score\n1,z,1\n", InputError, "scores no file of the trace"),
    ],
)
def test_faults_are_named(tmp_path: Path, trace: Trace, text: str, error: Any, match: str) -> None:
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(error, match=match):
        read_scores(tmp_path / "s.csv", trace)
    with pytest.raises(InputError, match="there is no "):
        read_scores(tmp_path / "nowhere.csv", trace)
