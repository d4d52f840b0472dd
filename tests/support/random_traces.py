"""Short traces of few small files, drawn at random, an access per second."""

import numpy as np
from hypothesis import strategies as st

from replay.trace import Trace


@st.composite
def traces(draw: st.DrawFn, max_accesses: int = 60, max_bytes: int = 20) -> Trace:
    """Of at most ten files, some without a byte."""
    m = draw(st.integers(1, 10))
    items = draw(st.lists(st.integers(0, m - 1), min_size=1, max_size=max_accesses))
    sizes = draw(st.lists(st.integers(0, max_bytes), min_size=m, max_size=m))
    return Trace(np.arange(len(items)), np.array(items), np.array(sizes))
