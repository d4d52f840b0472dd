"""Names and their numbers: as sets and sorted lists have them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from features.stream.names import absent, merged

NAMES = st.sets(st.text("ab\u00e9\U0001f4be\x00", max_size=4), max_size=12)


@settings(deadline=None)
@given(first=NAMES, others=st.tuples(NAMES, NAMES), seed=st.integers(0, 99), is_sorted=st.booleans())
def test_every_name_has_its_place_among_all(
    first: set[str], others: tuple[set[str], set[str]], seed: int, is_sorted: bool
) -> None:
    rng = random.Random(seed)
    lists = [sorted(first, key=str.encode), *([*some, *some] for some in others)]
    for names in lists if not is_sorted else lists[1:]:
        rng.shuffle(names)
    columns = [pa.chunked_array([pa.array(["a", *lists[0]], pa.string())[1:]])]
    columns += [pa.chunked_array([pa.array(names, pa.string()).dictionary_encode()]) for names in lists[1:]]
    every, numbers = merged(columns)
    wanted = sorted(first.union(*others), key=str.encode)
    assert every.to_pylist() == wanted
    for names, found in zip(lists, numbers, strict=True):
        assert [wanted[k] for k in found] == names
        assert found.dtype == np.int32


@settings(deadline=None)
@given(wanted=NAMES, there=NAMES, cut=st.integers(0, 12))
def test_names_that_are_not_in_a_column(wanted: set[str], there: set[str], cut: int) -> None:
    known = sorted(there, key=str.encode)
    column = pa.chunked_array([pa.array(known[:cut], pa.string()), pa.array(known[cut:][::-1], pa.string())])
    found = absent(pa.array(sorted(wanted), pa.string()), column)
    assert found.to_pylist() == [name for name in sorted(wanted) if name not in there]
