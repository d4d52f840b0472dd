"""What is typed, read."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cachecast_main import cachecast
from operator_site import row

from features.common.errors import InputError
from features.common.times import DAY_S, as_of_label, day_label
from features.schema import ACCESSES, PREDICTIONS
from jobs.cli.options import AskedReads
from jobs.cli.parsing import counts, moments, names, newest, seconds, shares, sizes, spans, watermarks
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables

HOUR_S = 3600
FIRST_S = 1_772_323_200  # 2026-03-01


def by_cycles(tmp_path: Path, cycle: str) -> Settings:
    variables = {"CACHECAST_TABLES__ROOT": str(tmp_path / "tables"), "CACHECAST_FEATURES__CYCLE": cycle}
    return Settings.load(None, env=variables)


def test_a_day_has_the_cycles_that_have_begun(tmp_path: Path) -> None:
    hourly = by_cycles(tmp_path, "1h")
    assert moments(hourly, None, "2026-03-01") == [FIRST_S + n * HOUR_S for n in range(24)]
    assert moments(hourly, "2026-03-01T04:00:00Z", None) == [FIRST_S + 4 * HOUR_S]
    now_s = int(time.time())
    today = moments(by_cycles(tmp_path, "1m"), None, day_label(now_s))
    assert today[0] <= today[-1] <= time.time()
    assert len(today) >= (now_s - today[0]) // 60
    with pytest.raises(InputError, match="has not begun"):
        moments(hourly, None, day_label(now_s + DAY_S))
    ahead = as_of_label(now_s + HOUR_S)
    assert moments(hourly, ahead, None) == [now_s + HOUR_S]
    with pytest.raises(InputError, match=f"{ahead} has not come"):
        moments(by_cycles(tmp_path, "30m"), ahead, None)


def test_a_time_that_is_not_typed_is_the_newest(tmp_path: Path) -> None:
    settings = by_cycles(tmp_path, "1h")
    tables, region, now_s = Tables.of(settings), settings.region.name, int(time.time())
    assert moments(settings, None, None) == [now_s - now_s % HOUR_S]
    for table, key in (
        (ACCESSES, ("2026-03-01",)),
        (PREDICTIONS, ("2026-03-01", "2026-03-01T04:00:00Z", region)),
        (PREDICTIONS, ("2026-03-01", "2026-03-01T05:00:00Z", "another")),
        (PREDICTIONS, ("2026-02-28", "2026-02-28T05:00:00Z", region)),
        (PREDICTIONS, ("2099-01-01", "2099-01-01T00:00:00Z", region)),
    ):
        tables.replace_rows(table, [row(table)], key)
    assert moments(settings, None, None) == [FIRST_S + DAY_S]
    assert newest(settings, "predictions") == FIRST_S + 4 * HOUR_S
    tables.replace_rows(ACCESSES, [row(ACCESSES)], (day_label(now_s),))
    assert moments(settings, None, None)[0] <= now_s


QUEUE, PREFILL = ("queue", "--name", "q", "--input", "/q"), ("prefill", "--cache", "c", "--dataset", "s:d")


@pytest.mark.parametrize(
    "words", [("train",), ("features",), ("predict",), ("cycle",), ("arrivals",), QUEUE, PREFILL]
)
def test_nothing_is_computed_for_a_time_that_has_not_come(tmp_path: Path, words: tuple[str, ...]) -> None:
    """It would stay the newest until then: a model that never is too old, a state that no cycle follows."""
    done = cachecast(*words, "--as-of", "2098-01-01T00:00:00Z", "--tables", tmp_path / "tables")
    assert done.returncode == 1
    assert "error: 2098-01-01T00:00:00Z has not come" in done.stderr
    assert not (tmp_path / "tables").exists()


def test_a_share_that_is_named_twice_is_one() -> None:
    assert shares("0.1,0.05,0.10,0.1000000000000001") == [0.1, 0.05]


@pytest.mark.parametrize("parse", [counts, spans, seconds])
@pytest.mark.parametrize("text", ["9" * 5000, "-1", "١", "1-9" * 5000], ids=len)
def test_a_number_that_is_none_or_too_long_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("parse", [counts, names, shares, sizes, spans, watermarks])
@pytest.mark.parametrize("text", [",", " , ", ",,"])
def test_a_list_of_nothing_is_refused(parse: Callable[[str], object], text: str) -> None:
    """It would be the same as no list: nothing would be replayed, and no file could be written of it."""
    with pytest.raises(InputError):
        parse(text)


def test_a_list_that_is_not_typed_is_empty_and_a_size_is_above_0() -> None:
    assert (names(""), sizes(""), shares("")) == ([], [], [])
    assert (names(" lru,, fifo,"), sizes("1kB, 2kB,")) == (["lru", "fifo"], [1000, 2000])
    with pytest.raises(InputError, match="a cache needs room"):
        sizes("1kB,0")


def test_numbers_are_read_with_their_spans_and_units() -> None:
    assert (counts("1, 4"), spans("52-54, 9")) == ([1, 4], [9, 52, 53, 54])
    assert seconds("300") == seconds("5m") == 300
    for text in ("", "0", "a", "3-", "1-9999999"):
        with pytest.raises(InputError, match="52-60,64"):
            spans(text)


def test_watermarks_may_be_equal_and_do_not_fall() -> None:
    assert watermarks("0.95,0.95") == (0.95, 0.95)
    with pytest.raises(InputError, match="not a low and a high watermark"):
        watermarks("0.95,0.9")


def test_what_describes_a_trace_needs_one(tmp_path: Path) -> None:
    options = AskedReads(time_zone="Europe/Berlin")
    with pytest.raises(InputError, match="give --trace"):
        options.file()
    file = dataclasses.replace(options, trace=tmp_path).file()
    assert file is not None
    assert file.time_zone == "Europe/Berlin"
    assert AskedReads(site="PIC").file() is None
