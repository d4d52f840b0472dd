"""Units, sizes and times: what people write, and back; errors that are bounded and cross processes."""

import pickle
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.accesses import UNKNOWN, catalogue_first, most_stated
from features.common.errors import (
    MAX_MESSAGE_CHARS,
    CachecastError,
    ConfigError,
    InputError,
    NotPlainError,
    ServiceError,
    bounded,
)
from features.common.times import as_of_label, day_label, parse_as_of, parse_day
from features.common.units import duration_label, format_bytes, parse_bytes, parse_duration, roughly

SECONDS = st.integers(0, 4_102_444_799)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("50TB", 50 * 10**12),
        ("1.5TiB", 3 * 2**39),
        ("1000000", 10**6),
        ("7 B", 7),
        ("2gb", 2 * 10**9),
        ("3K", 3000),
    ],
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes


SIZES = ["", "TB", "-1TB", "1XB", "1iB", "1 T B", "9" * 5000 + "TB", "9" * 400, "1e999", "4.7EB"]
DURATIONS = ["", "4", "h", "-1h", "1.5h", "4 hours", "9" * 5000 + "d", "9" * 400 + "d", "36601d"]
TIMES = ["", "yesterday", "2026-13-01", "2026-03-01T25:00:00Z"]


@pytest.mark.parametrize(
    ("parse", "texts", "kind"),
    [(parse_bytes, SIZES, "size"), (parse_duration, DURATIONS, "duration"), (parse_as_of, TIMES, "time")],
)
def test_what_is_none_is_named(parse: Callable[[str], int], texts: list[str], kind: str) -> None:
    for text in texts:
        with pytest.raises(InputError, match=f"not a {kind}"):
            parse(text)


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1_230_000, "1.23 MB"),
        (50 * 10**12, "50 TB"),
        (-2_000_000, "-2 MB"),
    ],
)
def test_sizes_are_shown_with_a_unit(n_bytes: int, text: str) -> None:
    assert format_bytes(n_bytes) == text


@given(st.integers(1, 10**7))
def test_a_duration_survives_its_label(seconds: int) -> None:
    assert parse_duration(duration_label(seconds)) == seconds


@given(SECONDS)
def test_an_as_of_survives_its_label(at_s: int) -> None:
    assert parse_as_of(as_of_label(at_s)) == at_s


@given(SECONDS)
def test_a_day_is_the_first_second_of_itself(at_s: int) -> None:
    assert parse_day(day_label(at_s)) == at_s - at_s % 86400


@given(st.text(max_size=3000))
def test_a_message_is_bounded_and_keeps_its_ends(text: str) -> None:
    cut = bounded(text)
    assert len(cut) <= MAX_MESSAGE_CHARS
    assert cut == text or (cut[:100] == text[:100] and cut[-100:] == text[-100:])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (59, "0s"),
        (119, "1m"),
        (7199, "119m"),
        (7200, "2h"),
        (2 * 86400, "2d"),
        (345343 * 60, "239d"),
    ],
)
def test_people_are_told_about_how_long(seconds: int, words: str) -> None:
    assert roughly(seconds) == words


@pytest.mark.parametrize(
    "error", [ConfigError("conf/base.toml: a", "no"), NotPlainError("p", "a pipe"), ServiceError("z")]
)
def test_another_process_gets_the_same_error(error: CachecastError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def expected(stated: list[int]) -> int:
    n_by_size = Counter(size for size in stated if size >= 0)
    positive = {size: n for size, n in n_by_size.items() if size} or n_by_size
    return max(positive, key=lambda size: (positive[size], size)) if n_by_size else UNKNOWN


@pytest.mark.parametrize("seed", range(5))
def test_a_file_has_the_size_that_most_records_state_else_the_largest(seed: int) -> None:
    rng = random.Random(seed)
    rows = [(rng.randrange(30), rng.choice((-1, 0, 0, 7, 8, 2**50))) for _ in range(120)]
    file, stated = (np.array(column) for column in zip(*rows, strict=True))
    sizes = [expected([size for at, size in rows if at == number]) for number in range(31)]
    assert most_stated(file.astype(np.int32), stated, 31).tolist() == sizes
    order = rng.sample(range(120), 120)
    assert most_stated(file[order].astype(np.int32), stated[order], 31).tolist() == sizes


def test_the_catalogue_counts_before_records_unless_it_says_0() -> None:
    listed, stated = np.array([5, 0, 0, -1, -1]), np.array([6, 6, -1, 6, -1])
    assert catalogue_first(listed, stated).tolist() == [5, 6, 0, 6, -1]
