"""Tables and facts on screens of any width: no word is broken, and what has no room becomes lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jobs.cli import layout
from jobs.ground import text as texts
from jobs.ground.text import Row, text

AT = "2026-03-01T04:00:00Z"


def drawn(rows: list[Row], width: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width)
    for part in layout.table(rows, width=width):
        screen.print(part, soft_wrap=True)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue().splitlines()


def words(lines: list[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


def test_a_table_with_room_is_a_grid_and_one_without_is_a_block_per_row() -> None:
    rows: list[Row] = [{f"time_of_{n}": AT for n in range(5)}, {f"time_of_{n}": AT for n in range(5)}]
    assert drawn(rows, 200)[0].startswith("┏")
    assert drawn(rows, 80)[:3] == [f"time of 0: {AT}", f"  time of 1: {AT}", f"  time of 2: {AT}"]


def test_a_list_of_sentences_has_a_line_for_each() -> None:
    facts = [str(line) for line in layout.facts({"notes": ("one thing", "another thing"), "n": 1}, width=80)]
    assert facts == ["notes:", "  - one thing", "  - another thing", "n: 1"]


CELLS = st.one_of(
    st.none(), st.integers(0, 10**15), st.floats(0, 1), st.text("ab /", max_size=60), st.just(AT)
)
KEYS = st.sampled_from(
    ["held_bytes", "doubling_adds_byte_hit_ratio", "at", "name", "model_version", "reason"]
)


@given(st.data(), st.lists(KEYS, min_size=1, max_size=6, unique=True), st.sampled_from([40, 80, 200]))
def test_no_word_is_ever_broken(data: st.DataObject, keys: list[str], width: int) -> None:
    rows: list[Row] = [{key: data.draw(CELLS) for key in keys} for _ in range(data.draw(st.integers(1, 3)))]
    lines = drawn(rows, width)
    drawn_words = words(lines)
    for key in keys:
        assert set(key.split("_")) <= {word.rstrip(":") for word in drawn_words}
        assert all(set(text(key, row[key]).split()) <= drawn_words for row in rows)
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


COMPARED = {
    *(texts.MODEL_COLUMNS, texts.REPLAY_COLUMNS, texts.TRACE_COLUMNS, texts.FLEET_COLUMNS),
    *(texts.CURVE_COLUMNS, texts.EVALUATION_COLUMNS, texts.PROMOTION_COLUMNS),
    *(texts.FORECAST_COLUMNS, texts.WORTH_COLUMNS, texts.STORAGE_COLUMNS),
}
NAMED = {"model", "policy", "against", "cache", "option"}
COUNTED = {"cuts": 104, "horizon": 104, "hits": 1_234_567, "under_way": 1_234_567, "nodes": 104}


@pytest.mark.parametrize("columns", sorted(COMPARED), ids=lambda columns: "-".join(columns[:2]))
def test_rows_that_are_compared_are_a_grid_on_80_characters(columns: tuple[str, ...]) -> None:
    def largest(key: str) -> object:
        if key in NAMED:
            return "lru+s3fifo_counts"
        is_bytes = "bytes" in key.split("_") and not key.endswith("ratio")
        return COUNTED.get(key, 45_678_901_234_567 if is_bytes else 0.54321)

    assert layout.fits([{key: largest(key) for key in columns}] * 3, width=80)


@pytest.mark.parametrize("width", [20, 80])
def test_a_paragraph_keeps_its_words_and_indents(width: int) -> None:
    plain = "  three times as much as the cache of today can hold at its high watermark"
    lines = layout.paragraph(plain, width=width).splitlines()
    assert lines[0].startswith("  three")
    assert " ".join(plain.split()) == " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width


def test_days_are_ranges_and_counts_of_nothing_are_left_out() -> None:
    days = ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-03"]
    assert text("days", days) == "2026-02-27 to 2026-03-01, 2026-03-03"
    assert text("days", days[:1]) == days[0] and text("names", ["2026", "b"]) == "2026, b"
    row = {"n_new": 2, "n_late": 0, "n_rejected": {}, "won": False, "seconds": 0.0, "error": None}
    assert layout.telling(row) == {"n_new": 2, "won": False, "seconds": 0.0}
    assert layout.telling({"n_rows": 0, "n_new": 0, "engine": "local"}) == {"n_rows": 0, "engine": "local"}
    assert layout.telling({"cache": "a", "cancelled": 0}) == {"cache": "a", "cancelled": 0}
