"""A newcomer's first hour: from an empty folder and a site's raw records to a push, on an 80-column terminal.

Each command's words, exit code, seconds and screen are a file in the folder named by CACHECAST_SCREENS, else
in pytest's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import time
from pathlib import Path

import pytest
from cachecast_main import cachecast
from planted_region import MLFLOW_WARNINGS
from small_week import SMALL

from features.common.times import DAY_S, as_of_label, day_label
from jobs.studies.simulate import workload

pytestmark = [pytest.mark.service, pytest.mark.verify, *MLFLOW_WARNINGS]  # the tutorial's test is shorter

WIDTH = 80
DAYS = 7
CYCLE_S = DAY_S // 2
BOXES = re.compile("[│┃┏└╭╰]")
HERE = {"CACHECAST_PLAN__MIN_PREFETCH_PROBABILITY": "0.1", "CACHECAST_SERVE__PORT": "9"}


@dataclasses.dataclass(frozen=True)
class Step:
    """A command as it went."""

    words: str
    exit_code: int
    seconds: float
    screen: str


class Newcomer:
    """Types commands in a folder, and keeps what the terminal shows."""

    def __init__(self, folder: Path, screens: Path) -> None:
        self._folder, self._screens = folder, screens
        self._env = {"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": str(WIDTH)}
        self._env |= SMALL | HERE
        self.steps: list[Step] = []

    def types(self, line: str) -> Step:
        """Run `cachecast` with the words of `line`."""
        if "init" not in line:
            self._env["CACHECAST_CONF"] = str(self._folder / "site.toml")
        began = time.monotonic()
        with contextlib.chdir(self._folder):
            done = cachecast(*line.split(), **self._env)
        step = Step(line, done.returncode, time.monotonic() - began, done.stderr + done.stdout)
        self.steps.append(step)
        head = f"$ cachecast {line}\nexit code {step.exit_code}, {step.seconds:.1f} s\n\n"
        name = f"{len(self.steps):02}-{line.split(maxsplit=1)[0].strip('-')}.txt"
        (self._screens / name).write_text(head + step.screen)
        return step


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """The first hour, typed."""
    folder = tmp_path_factory.mktemp("newcomer")
    screens = Path(os.environ.get("CACHECAST_SCREENS") or tmp_path_factory.mktemp("screens"))
    screens.mkdir(parents=True, exist_ok=True)
    as_of_s = int(time.time()) // CYCLE_S * CYCLE_S  # an older plan would have expired before its push
    today_s = as_of_s // DAY_S * DAY_S
    first, last = day_label(today_s - 4 * DAY_S), day_label(today_s - DAY_S)
    as_of, today = as_of_label(as_of_s), day_label(today_s)
    config = workload.load("demo", start_s=today_s - DAYS * DAY_S, seed=1, days=DAYS, accesses=6000)
    workload.write(config, out=folder / "raw", raw=True)
    for line in (folder / "raw" / "files.jsonl").read_text().splitlines():
        file = json.loads(line)
        path = folder / "origin" / file["name"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as content:
            content.truncate(file["bytes"])
    one = Newcomer(folder, screens)
    for line in (
        "--version",
        "init --cache cache --origin origin --capacity 2GB --records raw/traces/*.jsonl",
        "doctor",
        f"pull --source rucio_traces --input raw/traces/*.jsonl --day {today}",
        f"pull --source rucio_files --input raw/files.jsonl --day {today}",
        f"replay --from {first} --to {last} --policy lru,clairvoyant --capacity-fraction 0.1,0.2",
        "report --out report.html",
        f"cycle --as-of {as_of} --train",
        f"plan --cache cache --as-of {as_of}",
        f"push run --cache cache --as-of {as_of} --dry-run",
        f"push run --cache cache --as-of {as_of}",
        "status --json",
        f"push run --cache cache --as-of {as_of} --unproven",
        "push status --cache cache",
        "status",
        f"plan --cache cache --as-of {as_of} --json",
        "push status --cache cache --json",
        "status --json",
    ):
        one.types(line)
    return one


def test_every_command_ends_well(newcomer: Newcomer) -> None:
    steps = [step for step in newcomer.steps if not step.words.startswith("status")]
    failed = [(step.words, step.exit_code, step.screen[-2000:]) for step in steps if step.exit_code]
    assert [words for words, *_ in failed if not words.startswith("push run --cache cache --as-of")] == []
    assert len(failed) == 1


def test_no_screen_shows_a_trace_or_is_wider_than_the_terminal(newcomer: Newcomer) -> None:
    for step in newcomer.steps:
        assert "Traceback" not in step.screen, step.words
        wide = [line for line in step.screen.splitlines() if BOXES.search(line) and len(line) > WIDTH]
        assert not wide, step.words


def test_nothing_is_pushed_before_a_promotion(newcomer: Newcomer) -> None:
    refused, status = next(pair for pair in itertools.pairwise(newcomer.steps) if pair[0].exit_code)
    assert refused.words.startswith("push") and "--unproven" not in refused.words
    assert "no model was promoted" in " ".join(refused.screen.split())
    told = json.loads(status.screen.splitlines()[-1])
    assert told["champion"] is None
    assert [(one["push"], one["pins"], one["unproven"]) for one in told["caches"]] == [({}, 0, 0)]
    planned = next(step for step in newcomer.steps if step.words.startswith("plan"))
    assert "no model was promoted" in " ".join(planned.screen.split())


def test_what_was_planned_is_in_the_cache(newcomer: Newcomer) -> None:
    plan, push, _ = (json.loads(step.screen.splitlines()[-1]) for step in newcomer.steps[-3:])
    assert push["items"]["done"] > 0
    assert not {"failed", "expired"} & push["items"].keys()
    assert plan["held_files"] == push["items"]["done"]
    (cache,) = json.loads(newcomer.steps[-1].screen.splitlines()[-1])["caches"]
    assert cache["unproven"] == cache["pins"]  # what is fetched is done


def test_the_state_has_no_alarm_but_of_the_short_week(newcomer: Newcomer) -> None:
    status = newcomer.steps[-1]
    alarms = {alarm["name"] for alarm in json.loads(status.screen.splitlines()[-1])["alarms"]}
    assert {"no-champion"} <= alarms <= {"no-champion", "drift"}
    assert status.exit_code == bool(alarms)
