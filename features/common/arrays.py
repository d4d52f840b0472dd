"""Names for numpy arrays by the type of their elements; rows in lists."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
AnyFloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.int64]
AnyIntArray = npt.NDArray[np.integer]
BoolArray = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]

ROWS_AT_ONCE = 10_000
_Row = TypeVar("_Row")
_Columns = TypeVar("_Columns", bound=tuple[Any, ...])


def pages(rows: Iterable[_Row], n_rows: int = ROWS_AT_ONCE) -> Iterator[list[_Row]]:
    """`rows` in lists of at most `n_rows`."""
    rest = iter(rows)
    while page := list(itertools.islice(rest, n_rows)):
        yield page


def joined(parts: Sequence[_Columns]) -> _Columns:
    """The rows of several named tuples of arrays, one after the other."""
    kind: Any = type(parts[0])
    rows: _Columns = kind(*map(np.concatenate, zip(*parts, strict=True)))
    return rows


def taken(rows: _Columns, which: IntArray | BoolArray | slice) -> _Columns:
    """Some rows of a named tuple of arrays."""
    kind: Any = type(rows)
    some: _Columns = kind(*(column[which] for column in rows))
    return some


def short_repr(of: object, *names: str) -> str:
    """A line with the values `names` of an object whose arrays would fill the screen."""
    return f"{type(of).__name__}({', '.join(f'{name}={getattr(of, name)!r}' for name in names)})"
