"""What `status` advises ends the alarm: a site is put into its state, and the advised commands are run."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from cachecast_main import Ended, cachecast
from operator_site import row

from features.common.times import DAY_S, HOUR_S, as_of_label
from features.results import PROMOTIONS
from features.schema import CONTENTS, PLANS, PREDICTIONS, Table
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.operator.operate.alarms import REMEDIES
from prefetch.steward.figures import StewardFigures

ROOT = Path(__file__).parents[4]
OURS, DIGEST = "cachecast-default/1", "d" * 64
ACTIONS = ("prefetch", "prefetch", "pin", "pin")

TESTS: Final[Mapping[str, str]] = {
    "no-champion": "test_the_champion_follows_from_evaluations_and_can_be_taken_back",
    "prediction-late": "test_a_cycle_trains_and_the_next_one_serves_what_was_trained",
    "incomplete": "test_late_records_complete_their_decision_time",
    "drift": "test_drift_is_told_where_the_features_have_moved",
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
"""Alarms that tables and settings alone do not make, with the test in which they end."""


class Site:
    """A folder as cache, which holds two of four files; predictions, and maybe a champion and plans."""

    def __init__(self, folder: Path) -> None:
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
        for hours in range(4):
            self.write(PREDICTIONS, rows, owner="default", hours_ago=hours)

    def configure(self, *, capacity: str = "1GB", quota: str = "1MB") -> None:
        """Write the settings."""
        at = self.folder
        (at / "site.toml").write_text(
            f'[tables]\nroot = "{at}/tables"\n[push]\njournal = "{at}/journal.db"\n'
            f'[steward]\nstate = "{at}/state"\n[collect]\nquota = "{quota}"\n'
            f'[caches.d]\nname = "d"\nkind = "directory"\nurl = "{at}/cache"\ncapacity = "{capacity}"\n'
            f'origin = "{at}/origin"\nevict_guard = "0s"\ngstream = "{at}/captures"\n'
        )
        self.settings = Settings.load(at / "site.toml", env={})

    def write(self, table: Table, rows: Sequence[Any], *, owner: str = "d", hours_ago: int = 0) -> None:
        key = MomentKey.at(self.at_s - hours_ago * HOUR_S, owner)
        Tables(self.settings.tables.root).replace_rows(table, rows, key)

    def promote(self) -> None:
        champion = {"champion": OURS, "champion_digest": DIGEST, "model_version": OURS}
        decision = row(PROMOTIONS, action="promote", comparisons="[]", steward=None, **champion)
        self.write(PROMOTIONS, [decision], owner="default")

    def plan(self, *, hours_ago: int = 0, left_out: int = 0) -> None:
        """A plan by the model, without the first files."""
        ends = dt.datetime.fromtimestamp(self.at_s + 2 * DAY_S, dt.UTC)
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
        return {one["name"]: one for one in json.loads(self.types("status --json").stdout)["alarms"]}


class State(NamedTuple):
    """`comes`: the state of an alarm; `words`: in its text or remedy; `repaired`: what no command does."""

    comes: Callable[[Site], None]
    words: str = ""
    repaired: Callable[[Site], None] = lambda _: None


def not_pushed(site: Site) -> None:
    site.promote()
    site.plan()


def unproven(site: Site) -> None:
    site.plan()
    site.push(more="--unproven")


def failed(site: Site) -> None:
    (site.folder / "origin" / "store" / "f0").unlink()
    site.promote()
    site.plan(hours_ago=1)
    site.push(hours_ago=1)


def planned_anew(site: Site) -> None:
    site.plan(left_out=1)
    site.push()


def too_full(site: Site) -> None:
    site.write(CONTENTS, [row(CONTENTS, did="cms:/store/gone", bytes_on_disk=990_000_000)], hours_ago=1)


def looked_anew(site: Site) -> None:
    site.types(f"plan --cache d --as-of {as_of_label(site.at_s)} --force")


def pins_of_a_larger_cache(site: Site) -> None:
    not_pushed(site)
    site.push()
    site.configure(capacity="200B")


def captured(site: Site) -> None:
    capture = "gstream-000000000001-20231114T221320Z.capture"
    (site.folder / "captures" / capture).write_bytes(b"x" * 900_000)


def silent(site: Site) -> None:
    StewardFigures.before("d", site.at_s - HOUR_S).write(site.settings.steward.figures("d"))


STATES: Final[Mapping[str, State]] = {
    "plan-late": State(lambda site: site.promote()),
    "push-failed": State(failed, "the next plan has what is still worth it", planned_anew),
    "not-pushed": State(not_pushed, "resumes where it stopped"),
    "not-pushed, withheld": State(lambda site: site.plan(), "is withheld"),
    "unproven": State(unproven, "no promotion covers"),
    "above-high-watermark": State(too_full, "the next plan", looked_anew),
    "pins-over-limit": State(pins_of_a_larger_cache, "correct `capacity`", Site.configure),
    "collector-full": State(captured, "raise [collect] quota", lambda site: site.configure(quota="2MB")),
    "steward-silent": State(
        silent, "delete the cache's file", lambda site: site.settings.steward.figures("d").unlink()
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_what_is_advised_ends_the_alarm(name: str, tmp_path: Path) -> None:
    site, state, alarm = Site(tmp_path), STATES[name], name.partition(",")[0]
    state.comes(site)
    told = site.alarms()
    assert alarm in told, told
    assert state.words in f"{told[alarm]['text']}; {told[alarm]['remedy']}"
    ends = [site.types(line) for line in re.findall(r"`cachecast ([^`]+)`", told[alarm]["remedy"])]
    state.repaired(site)
    assert alarm not in site.alarms(), ends


def test_every_alarm_has_a_test_in_which_it_ends() -> None:
    of_states = {name.partition(",")[0] for name in STATES}
    assert of_states | TESTS.keys() == REMEDIES.keys() and not of_states & TESTS.keys()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [test for test in TESTS.values() if f"def {test}(" not in tests]
