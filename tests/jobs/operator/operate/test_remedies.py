"""What `status` advises ends the alarm: a site is put into its state, and the advised commands are run."""

import dataclasses
import datetime as dt
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from cachecast_main import Ended, cachecast
from folder_site import folder_site
from operator_site import row
from planted_region import MLFLOW_WARNINGS
from raw_records import gstream

from features.common.times import DAY_S, HOUR_S, as_of_label, day_label
from features.results import DRIFT, PROMOTIONS, TRAININGS
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS, Table
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.operator.operate.remedies import REMEDIES
from prefetch.steward.figures import StewardFigures

pytestmark = MLFLOW_WARNINGS
ROOT = Path(__file__).parents[4]
OURS, DIGEST = "cachecast-default/1", "d" * 64
ACTIONS = ("prefetch", "prefetch", "pin", "pin")

TESTS: Final[Mapping[str, str]] = {
    "no-champion": "test_a_site_follows_what_status_says_from_its_first_records_on",
    "prediction-late": "test_a_site_follows_what_status_says_from_its_first_records_on",
    "incomplete": "test_a_site_follows_what_status_says_from_its_first_records_on",
    "drift": "test_a_site_follows_what_status_says_from_its_first_records_on",
    "steward-outrun": "test_more_than_the_high_watermark_is_told_and_pins_are_why",
    "steward-blind": "test_what_was_not_reported_is_found_in_the_namespace",
    "steward-implausible": "test_a_cache_much_fuller_than_its_watermark_is_left_alone_without_force",
    "steward-impostor": "test_two_senders_in_one_name_are_told_and_the_servers_own_is_heard",
    "steward-cache": "test_a_stopped_server_is_an_alarm_of_the_cache_until_it_is_started",
    "steward-lists": "test_nothing_is_evicted_while_pins_are_unknown",
    "steward-tables": "test_it_begins_and_works_without_tables_and_gives_them_its_figures_later",
    "steward-order": "test_a_steward_follows_promotions_without_a_restart",
    "queue-doubted": "test_a_queue_that_does_not_keep_its_word_or_grows_is_named",
    "steward-clock": "test_a_clock_days_from_the_newest_record_is_in_doubt_until_it_is_right",
}
"""Alarms that planted tables do not make, with the test in which they end."""


class Site:
    """A folder as cache, which holds two of four files; predictions, and maybe a champion and plans."""

    def __init__(self, folder: Path, *, is_predicted: bool = True) -> None:
        self.folder = folder
        self.at_s = int(time.time()) // HOUR_S * HOUR_S
        for where, numbers in (("origin", range(4)), ("cache/files", range(2, 4))):
            (folder / where / "store").mkdir(parents=True)
            for number in numbers:
                (folder / where / "store" / f"f{number}").write_bytes(b"x" * 100)
        (folder / "captures").mkdir()
        self.configure()
        predicted: dict[str, Any] = {"horizon_s": self.settings.plan.horizon, "size_bytes": 100}
        predicted |= {"probability": 0.5, "model_version": OURS, "model_digest": DIGEST}
        rows = [row(PREDICTIONS, did=f"cms:/store/f{n}", **predicted) for n in range(4)]
        for hours in range(4 * is_predicted):
            self.write(PREDICTIONS, rows, owner="default", hours_ago=hours)

    def configure(
        self, *, capacity: str = "1GB", quota: str = "1MB", serve: str = "", more: str = ""
    ) -> None:
        """Write the settings."""
        at = self.folder
        keys = (
            f'evict_guard = "0s"\ngstream = "{at}/captures"\n'
            f'[steward]\nstate = "{at}/state"\n[collect]\nquota = "{quota}"\n'
            f'[mlflow]\nuri = "sqlite:///{at}/mlflow.db"\nartifacts = "{at}/artifacts"\n{serve}{more}'
        )
        self.settings = Settings.load(folder_site(at, keys, cache="d", capacity=capacity), env={})

    def write(self, table: Table, rows: Sequence[Any], *, owner: str = "d", hours_ago: int = 0) -> None:
        key = MomentKey.at(self.at_s - hours_ago * HOUR_S, owner)
        Tables(self.settings.tables.root).replace_rows(table, rows, key)

    def promote(self) -> None:
        champion = {"champion": OURS, "champion_digest": DIGEST, "model_version": OURS}
        decision = row(PROMOTIONS, action="promote", comparisons="[]", steward=None, **champion)
        self.write(PROMOTIONS, [decision], owner="default")

    def plan(self, *, hours_ago: int = 0, left_out: int = 0, ends_s: int = 2 * DAY_S) -> None:
        """A plan by the model, without the first files."""
        ends = dt.datetime.fromtimestamp(self.at_s + ends_s, dt.UTC)
        by_model = {"model_version": OURS, "model_digest": DIGEST, "needs_model": True, "expires_at": ends}
        rows = [
            row(PLANS, item_id=f"{hours_ago}{n}", did=f"cms:/store/f{n}", name=f"/store/f{n}", action=action)
            | {"rank": n + 1, "value": 1.0, "cost_bytes": 100, "size_bytes": 100, **by_model}
            for n, action in enumerate(ACTIONS)
        ]
        self.write(PLANS, rows[left_out:], hours_ago=hours_ago)

    def push(self, *, hours_ago: int = 0, more: str = "") -> None:
        at = as_of_label(self.at_s - hours_ago * HOUR_S)
        self.types(f"push run --cache d --as-of {at} --force {more}")

    def types(self, line: str) -> Ended:
        ended = cachecast(*shlex.split(line), "--conf", self.folder / "site.toml")
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def alarms(self) -> dict[str, dict[str, str]]:
        """Those of `status`, by name."""
        return {alarm["name"]: alarm for alarm in json.loads(self.types("status --json").stdout)["alarms"]}


class State(NamedTuple):
    """`comes`: the state of an alarm; `words`: in its text or remedy; `repaired`: what no command does.

    `is_first`: it is repaired before the commands are run.
    """

    comes: Callable[[Site], None]
    words: str = ""
    repaired: Callable[[Site], None] = lambda _: None
    is_first: bool = False


def not_pushed(site: Site) -> None:
    site.promote()
    site.plan()


def unproven(site: Site) -> None:
    site.plan()
    site.push(more="--unproven")


def failed(site: Site) -> None:
    (site.folder / "origin" / "store" / "f0").rename(site.folder / "kept")
    site.promote()
    site.plan(hours_ago=1)
    site.push(hours_ago=1)


def unproven_and_failed(site: Site) -> None:
    (site.folder / "origin" / "store" / "f0").unlink()
    unproven(site)


def planned_anew(site: Site) -> None:
    site.plan(left_out=1)
    site.push()


def cache_is_away(site: Site) -> None:
    site.promote()
    (site.folder / "cache").rename(site.folder / "away")
    (site.folder / "cache").write_text("no folder")


def not_pushed_and_away(site: Site) -> None:
    cache_is_away(site)
    site.plan()
    site.push()


def cache_is_here(site: Site) -> None:
    (site.folder / "cache").unlink()
    (site.folder / "away").rename(site.folder / "cache")


def too_full(site: Site) -> None:
    site.write(CONTENTS, [row(CONTENTS, did="cms:/store/gone", bytes_on_disk=990_000_000)], hours_ago=1)


def looked_anew(site: Site) -> None:
    site.types(f"plan --cache d --as-of {as_of_label(site.at_s)} --force")


def looked(site: Site, *, used_bytes: int = 0, ago_s: int = 0) -> None:
    now_s = int(time.time()) - ago_s
    figures = dataclasses.replace(
        StewardFigures.before("d", now_s), used_bytes=used_bytes, high_bytes=95 * 10**7
    )
    figures.write(site.settings.steward.figures("d"))


def pins_of_a_larger_cache(site: Site) -> None:
    not_pushed(site)
    site.push()
    site.configure(capacity="200B")


def captured(site: Site) -> None:
    records = gstream(["/store/f1"])
    capture = site.folder / "captures" / "gstream-000000000001-20231114T221320Z.capture"
    capture.write_text(records * (900_000 // len(records)))
    os.utime(capture, (0, 0))


def silent(site: Site) -> None:
    looked(site, ago_s=HOUR_S)


def damaged(site: Site) -> None:
    silent(site)
    site.settings.steward.figures("d").write_text('{"of": "another version"}')


def not_wanted(site: Site) -> None:
    site.settings.steward.figures("d").unlink()


STATES: Final[Mapping[str, State]] = {
    "plan-late": State(Site.promote),
    "plan-late, the cache is away": State(cache_is_away, "its error says", cache_is_here, is_first=True),
    "push-failed, the file is gone": State(failed, "whose time is over at"),
    "push-failed, until the next push": State(failed, "", planned_anew),
    "not-pushed": State(not_pushed, "resumes where it stopped"),
    "not-pushed, the cache is away": State(
        not_pushed_and_away, "resumes where it stopped", cache_is_here, is_first=True
    ),
    "not-pushed, withheld": State(lambda site: site.plan(), "is withheld"),
    "unproven": State(unproven, "no promotion covers"),
    "unproven, and what is undone has failed": State(unproven_and_failed, "no promotion covers"),
    "above-high-watermark": State(too_full, "the next plan", looked_anew),
    "above-high-watermark, by its steward": State(
        lambda site: looked(site, used_bytes=990_000_000), "its steward looks again", looked
    ),
    "pins-over-limit": State(pins_of_a_larger_cache, "correct `capacity`"),
    "pins-over-limit, by mistake": State(pins_of_a_larger_cache, "correct `capacity`", Site.configure, True),
    "collector-full": State(captured, "older than 14d"),
    "collector-full, all are needed": State(
        captured, "raise [collect] quota", lambda site: site.configure(quota="9MB"), is_first=True
    ),
    "steward-silent": State(silent, "delete the cache's file", not_wanted),
    "steward-silent, it reports again": State(silent, "restart its service", looked),
    "steward-silent, damaged": State(damaged, "cannot read", not_wanted),
}


@pytest.mark.parametrize("name", STATES)
def test_what_is_advised_ends_the_alarm(name: str, tmp_path: Path) -> None:
    site, state, alarm = Site(tmp_path), STATES[name], name.partition(",")[0]
    state.comes(site)
    alarms = site.alarms()
    assert alarm in alarms, alarms
    assert state.words in f"{alarms[alarm]['text']}; {alarms[alarm]['remedy']}"
    if state.is_first:
        state.repaired(site)
    ends = advised(site, alarms[alarm])
    if not state.is_first:
        state.repaired(site)
    assert alarm not in site.alarms(), ends


def advised(site: Site, alarm: Mapping[str, str]) -> list[Ended]:
    """Run the commands of an alarm's remedy."""
    return [site.types(line) for line in re.findall(r"`cachecast ([^`]+)`", alarm["remedy"])]


def test_a_plan_that_is_refused_says_what_ends_the_alarm(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.promote()
    held = [row(CONTENTS, did=f"cms:/store/g{n}", name=f"/store/g{n}", bytes_on_disk=10**6) for n in range(9)]
    site.write(CONTENTS, held, hours_ago=1)
    late = site.alarms()["plan-late"]
    (refused,) = advised(site, late)
    assert refused.returncode and "--force" in refused.stderr and "plan-late" in site.alarms()
    assert not site.types("plan --cache d --force").returncode and "plan-late" not in site.alarms()


def test_what_failed_is_tried_again_once_its_file_is_back(tmp_path: Path) -> None:
    site = Site(tmp_path)
    failed(site)
    again = "push resume --cache d --failed"
    assert again in site.alarms()["push-failed"]["remedy"] and site.types(again).returncode == 1
    assert "push-failed" in site.alarms()
    (tmp_path / "kept").rename(tmp_path / "origin" / "store" / "f0")
    assert site.types(again).returncode == 0
    assert "push-failed" not in site.alarms()


def test_what_is_over_is_no_alarm(tmp_path: Path) -> None:
    """Nobody can push, or push again, what has expired: the next plan is late instead."""
    site = Site(tmp_path)
    failed(site)
    site.plan(hours_ago=1, ends_s=-1)
    site.write(PLANS, [], owner="d")  # and a plan without an item is never pushed
    assert site.alarms() == {}


def test_predictions_that_a_model_too_old_cannot_make_are_one_alarm_with_all_steps(tmp_path: Path) -> None:
    site = Site(tmp_path, is_predicted=False)
    site.promote()
    files = {"model_version": OURS, "model_digest": DIGEST}
    site.write(TRAININGS, [files], owner="default", hours_ago=40 * 24)
    store = Tables(site.settings.tables.root)
    store.replace_rows(ACCESSES, [row(ACCESSES, did="cms:/a", event_id="1")], ("2026-03-01",))
    (late,) = site.alarms().values()
    assert late["name"] == "prediction-late" and "older than [training] max_age" in late["text"]
    commands = re.findall(r"`cachecast (\w+)", late["remedy"])
    assert commands == ["cycle", "evaluate", "promote", "cycle"] and "--from 2026-" in late["remedy"]


def raw_records(folder: Path, *, n_days: int) -> Path:
    """Raw records of some small days, the last one today."""
    start = day_label(int(time.time()) // DAY_S * DAY_S - (n_days - 1) * DAY_S)
    words = ("--days", n_days, "--accesses", 900 * n_days, "--start", start, "--raw")
    written = cachecast("workload", *map(str, words), "--out", folder / "raw")
    assert written.returncode == 0, written.stderr
    return folder / "raw" / "traces"


def small(raw: Path) -> str:
    """The settings of a small site that pulls `raw`."""
    return (
        f'[airflow]\npull = {{ rucio_traces = "{raw}/*.jsonl" }}\n[users]\nsalt = "s"\n'
        '[features]\ncycle = "12h"\nhorizons = ["1d"]\n[plan]\nhorizon = "1d"\n'
        '[training]\nspan = "5d"\nevery = "12h"\ntrees = 20\norder = false\n'
        f'spool = "{raw}/trainings"\n'
    )


SERVE = 'serve = ["champion", "candidate"]\n'


def follow(site: Site, name: str) -> dict[str, dict[str, str]]:
    """Run what the alarm `name`, the only one, advises; the alarms then."""
    alarms = site.alarms()
    assert alarms.keys() == {name}, alarms
    failed = [ended.stderr for ended in advised(site, alarms[name]) if ended.returncode]
    assert not failed
    return site.alarms()


def drifts(site: Site, as_of_s: int, psi: float) -> None:
    rows = [row(DRIFT, column="age_s", psi=psi, drifted=psi > 0)]
    Tables(site.settings.tables.root).replace_rows(DRIFT, rows, MomentKey.at(as_of_s, "default"))


def test_a_site_follows_what_status_says_from_its_first_records_on(tmp_path: Path) -> None:
    site, raw_week = Site(tmp_path, is_predicted=False), raw_records(tmp_path, n_days=7)
    site.configure(more=small(raw_week))
    later, begun_s = sorted(raw_week.glob("*.jsonl"))[-2:], int(time.time()) // (DAY_S // 2) * (DAY_S // 2)
    for file in later:
        file.rename(tmp_path / file.name)
    first_s = int(time.time()) // DAY_S * DAY_S - 6 * DAY_S
    waits = follow(site, "no-champion")["no-champion"]
    assert f"can be run from {day_label(first_s + 23 * DAY_S)} on" in waits["text"]
    site.configure(more=small(raw_week), serve=SERVE)
    follow(site, "no-champion")
    late = follow(site, "prediction-late")
    assert late.keys() - {"drift"} == {"plan-late"}
    drifts(site, begun_s, 0.0)  # by noon, two days without records are drift
    assert follow(site, "plan-late").keys() <= {"not-pushed"}
    site.types(f"push run --cache d --as-of {late['plan-late']['text'].split()[-5]} --unproven --force")
    site.types("push cancel --cache d --unpin")
    site.types(f"arrivals --as-of {as_of_label(begun_s)}")
    for file in later:
        (tmp_path / file.name).rename(file)
    assert follow(site, "incomplete") == {}
    drifts(site, begun_s, 0.9)
    assert "drift" not in follow(site, "drift")


@pytest.mark.verify
def test_a_new_site_waits_for_days_enough_and_then_for_a_promotion(tmp_path: Path) -> None:
    site = Site(tmp_path, is_predicted=False)
    site.configure(more=small(raw_records(tmp_path, n_days=24)))
    assert "can be run from" not in follow(site, "no-champion")["no-champion"]["text"]
    alarms = follow(site, "no-champion")
    assert "no-champion" not in alarms or "refused, which may be right" in alarms["no-champion"]["text"]


def test_the_page_has_each_alarm_with_its_remedy_and_its_end() -> None:
    page = (ROOT / "docs" / "troubleshoot.md").read_text()
    _, table = page.split("\n| alarm | first | it ends |\n|---|---|---|\n")
    rows = [line.strip("| ").split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    assert [row[:2] for row in rows] == [[f"[{name}](#{name})", do] for name, do in sorted(REMEDIES.items())]
    assert all(len(row) == 3 for row in rows)


def test_every_alarm_has_a_test_in_which_it_ends() -> None:
    of_states = {name.partition(",")[0] for name in STATES}
    assert of_states | TESTS.keys() == REMEDIES.keys() and not of_states & TESTS.keys()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [test for test in TESTS.values() if f"def {test}(" not in tests]
