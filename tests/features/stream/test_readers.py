"""Kinds of readers that a table's accesses name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from features.accesses import reader_kinds

ROWS = {
    "popularity": ("alice", None, "cms"),
    "panda": ("alice", "task", "rucio_traces"),
    "fstream": ("hash", None, "xrootd_fstream"),
    "gstream": (None, None, "xcache_gstream"),
}


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (["gstream"], ()),
        (["popularity"], ("user",)),
        (["panda"], ("task",)),
        (["fstream", "gstream"], ("session",)),
        (["panda", "popularity", "fstream"], ("task", "user", "session")),
        (["gstream"] * 10 + ["popularity"], ()),
        ([], ()),
    ],
)
def test_kinds_are_those_of_a_tenth_of_the_accesses(rows: list[str], kinds: tuple[str, ...]) -> None:
    columns = zip(*(ROWS[row] for row in rows), strict=True) if rows else ([], [], [])
    table = {
        name: pa.array(list(of), pa.string())
        for name, of in zip(("user", "task", "source"), columns, strict=True)
    }
    assert reader_kinds(pa.table(table), ["xrootd_fstream"]) == kinds
