"""What the command line shows: names as they are, answers, progress, and tables on screens of any width."""

import dataclasses
import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner
from waiting import eventually

from features.common.progress import unwatched
from jobs.cli import console, layout
from jobs.cli.console import Lines
from jobs.cli.ending import remedy
from jobs.cli.main import app
from jobs.ground import text as texts
from jobs.ground.text import Row, text
from jobs.operator.operate import due as cache_list

AT = "2026-03-01T04:00:00Z"
MARKUP, ORDERS = "/store/[red]/[/bold]/f[1].root", "a\x1b[2J\x9bb"


@dataclasses.dataclass(frozen=True)
class Answer:
    rows: int
    alarms: tuple[str, ...]


def test_an_alarm_is_said_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer(3, ("columns have drifted",))
    console.show_warning(answer)
    screen = capsys.readouterr()
    assert "rows" in screen.out and (screen.out + screen.err).count("drifted") == 1
    monkeypatch.setattr(console, "is_json", True)
    console.show_warning(answer)
    screen = capsys.readouterr()
    assert json.loads(screen.out) == {"rows": 3, "alarms": ["columns have drifted"]}
    assert "drifted" in screen.err


@pytest.mark.parametrize("answer", [{"a": MARKUP, "b": ORDERS}, [{"a": MARKUP, "b": ORDERS}]])
def test_names_are_no_markup_and_give_the_terminal_no_orders(
    capsys: pytest.CaptureFixture[str], answer: object
) -> None:
    console.show(answer)
    console.log(ORDERS)
    console.warn(ORDERS)
    screen = capsys.readouterr()
    assert not {"\x1b", "\x9b"} & set(screen.out + screen.err)
    assert "\\x1b[2J" in screen.out and MARKUP in screen.out


def test_memory_that_does_not_suffice_is_one_line() -> None:
    assert "no table is half written" in str(remedy(MemoryError()))


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        ("[INVALID_DRIVER_MEMORY.SYSTEM_MEMORY] Insufficient driver memory", "[spark] driver_memory"),
        ("[INVALID_EXECUTOR_MEMORY.CONFIG_MEMORY] Insufficient executor memory", "spark.executor.memory"),
        ("Job aborted: ExecutorLostFailure (executor 3 exited, code 137)", "spark.executor.memoryOverhead"),
        ("Python worker exited unexpectedly (crashed)", "spark.executor.memoryOverhead"),
        ("OSError: failed to map segment from shared object", "spark.executor.pyspark.memory"),
        ("Job aborted: java.lang.OutOfMemoryError: Java heap space", "[spark] driver_memory"),
    ],
)
def test_too_little_memory_of_spark_names_what_to_raise(words: str, setting: str) -> None:
    assert setting in str(remedy(RuntimeError(f"org.apache.spark.SparkException: {words}")))


def printed(steps: list[tuple[int, int, str]], *, each_s: int) -> list[str]:
    """The lines of steps that take `each_s` seconds each, looked for every second."""
    lines, shown_lines, now_s = Lines("up", now_s=0), [], 0
    for done, total, name in steps:
        lines.advance(done, total, name, now_s=now_s)
        for _ in range(each_s):
            now_s += 1
            if line := lines.due(now_s):
                shown_lines.append(line)
    return shown_lines


@pytest.mark.parametrize(
    ("steps", "each_s", "lines"),
    [
        ([(0, 2, "a"), (1, 2, "b")], 10, ["up: a, 0 of 2 done (2s)", "up: b, 1 of 2 done (12s)"]),
        ([(0, 1, "a")], 190, [f"up: a, 0 of 1 done ({after})" for after in ("2s", "1m", "2m", "3m")]),
        ([(n, 5, f"step {n}") for n in range(5)], 1, []),
    ],
    ids=["a line for each of few steps", "a line a minute of a long one", "none for quick ones"],
)
def test_steps_have_lines(steps: list[tuple[int, int, str]], each_s: int, lines: list[str]) -> None:
    assert printed(steps, each_s=each_s) == lines


def test_without_a_terminal_lines_are_written_while_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "BRIEF_S", 0.0)
    monkeypatch.setattr(console, "_LOOK_S", 0.01)
    with console.progress("up") as advance:
        advance(0, 1, "mlflow")
        screen = eventually(lambda: capsys.readouterr().err, 5)
    assert screen == "up: mlflow, 0 of 1 done (0s)\n"


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command whose job shows progress, notes a remark and logs what it reads."""

    def listed(*_args: object) -> list[cache_list.CacheLine]:
        with console.progress("listing") as advance:
            console.log("silent" if advance is unwatched else "watched")
        console.notes(["a remark"])
        logging.getLogger("jobs.operator.operate.due").info("read a table")
        return []

    monkeypatch.setattr(cache_list, "listed", listed)


@pytest.mark.parametrize(
    ("words", "watched", "noted", "explained"),
    [([], True, True, False), (["--quiet"], False, False, False), (["--verbose"], True, True, True)],
)
@pytest.mark.usefixtures("listing")
def test_quiet_silences_and_verbose_explains(
    words: list[str], watched: bool, noted: bool, explained: bool
) -> None:
    screen = CliRunner().invoke(app, ["caches", *words]).stderr
    assert ("watched" in screen, "silent" in screen) == (watched, not watched)
    assert ("note: a remark" in screen) == noted
    assert ("jobs.operator.operate.due: read a table" in screen) == explained
    assert ("settings from" in screen) == explained


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


def test_days_are_ranges_and_counts_of_nothing_are_left_out() -> None:
    days = ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-03"]
    assert text("days", days) == "2026-02-27 to 2026-03-01, 2026-03-03"
    assert text("days", days[:1]) == days[0] and text("names", ["2026", "b"]) == "2026, b"
    row = {"n_new": 2, "n_late": 0, "n_rejected": {}, "won": False, "seconds": 0.0, "error": None}
    assert layout.telling(row) == {"n_new": 2, "won": False, "seconds": 0.0}
    assert layout.telling({"n_rows": 0, "n_new": 0, "engine": "local"}) == {"n_rows": 0, "engine": "local"}
    assert layout.telling({"cache": "a", "cancelled": 0}) == {"cache": "a", "cancelled": 0}
