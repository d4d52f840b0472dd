"""The status by tables written here, its alarms, and the figures that commands leave."""

import contextlib
import dataclasses
import datetime as dt
import json
import re
from pathlib import Path

import pytest
from operator_site import row
from prometheus_client.parser import text_string_to_metric_families
from steward_figures import steward_figures
from typer.testing import CliRunner

from features.common import files
from features.common.errors import NotDueError
from features.common.times import as_of_label, parse_as_of
from features.results import ANNOUNCED, PROMOTIONS
from features.schema import ACCESSES, CONTENTS, PLANS, PREDICTIONS, QUEUE, RECEIPTS
from jobs.cli.main import app
from jobs.cli.operation import steward_line
from jobs.cli.parsing import newest
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.operator.operate import prometheus
from jobs.operator.operate.prometheus import of_status, of_steward
from jobs.operator.operate.status import run
from prefetch.actions import Action, ItemState
from prefetch.journal.journal import Item, Journal, Receipt

AT = "2026-03-01T04:00:00Z"
NOW_S = parse_as_of("2026-03-01T05:00:00Z")
ENDS = dt.datetime(2026, 3, 3, 4, tzinfo=dt.UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "caches").mkdir()
    (tmp_path / "caches" / "xc1.toml").write_text(
        'name = "xc1"\nkind = "xcache"\nurl = "root://x:1"\ncapacity = "1000GB"\n'
    )
    files = {"CACHECAST_PUSH__JOURNAL": "journal.db", "CACHECAST_STEWARD__STATE": "steward"}
    env = {key: str(tmp_path / name) for key, name in files.items()}
    return Settings.load(tmp_path, tables=str(tmp_path / "tables"), env=env)


@pytest.fixture
def tables(settings: Settings) -> Tables:
    """A region in order: predictions, a champion, a cache that was planned for and pushed to at AT."""
    store, key = Tables(settings.tables.root), ("2026-03-01", AT)
    older = ("2026-03-01", "2026-03-01T03:00:00Z")
    store.replace_rows(PREDICTIONS, [row(PREDICTIONS, did="a", model_version="m/2")], (*key, "default"))
    decision = row(PROMOTIONS, model_version="m/2", champion="m/2", action="promote", comparisons="[]")
    store.replace_rows(PROMOTIONS, [decision], (*key, "default"))
    for at, size in ((older, 1), (key, 400 * 10**9)):
        held = [row(CONTENTS, did=did, bytes_on_disk=size) for did in ("a", "b")]
        store.replace_rows(CONTENTS, held, (*at, "xc1"))
    plan = [
        row(PLANS, item_id=str(n), action=action, expires_at=ENDS)
        for n, action in enumerate(("pin", "pin", "evict"))
    ]
    store.replace_rows(PLANS, plan, (*key, "xc1"))
    store.replace_rows(RECEIPTS, [row(RECEIPTS, item_id="0", state="done")], (*key, "xc1"))
    return store


def pin(settings: Settings, size_bytes: int) -> None:
    journal = Journal(settings.push.journal)
    item = Item(
        "0", "xc1", NOW_S - 3600, "a", "/a", Action.PIN, 1, size_bytes, 0, NOW_S + 3600, basis="known"
    )
    journal.plans.record_plan([item], now_s=NOW_S)
    with journal.leases.held("xc1", lambda: NOW_S) as lease:
        lease.begin(Action.PIN, 1, now_s=NOW_S)
        lease.finish({"0": Receipt(ItemState.DONE)}, now_s=NOW_S)
    journal.close()


def alarms(settings: Settings, now_s: int = NOW_S) -> set[tuple[str, str]]:
    return {(alarm.name, alarm.about) for alarm in run(settings, now_s=now_s).alarms}


def test_a_region_in_order_has_no_alarm(settings: Settings, tables: Tables) -> None:
    pin(settings, 5)
    status = run(settings, now_s=NOW_S)
    assert status.alarms == ()
    assert (status.champion, status.scored_by, status.predictions_at) == ("m/2", "m/2", AT)
    (cache,) = status.caches
    assert (cache.held_files, cache.held_bytes, cache.fill_share) == (2, 800 * 10**9, 0.8)
    assert (cache.pins, cache.pinned_bytes) == (1, 5)
    assert (cache.plan, cache.push) == ({"pin": 2, "evict": 1}, {"done": 1})


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (
            ["2026-02-20", "2026-03-01"],
            "since 2026-03-01, and an evaluation of 21 days, which may promote one, can",
        ),
        (
            ["1990-01-01", "2026-02-28", "2027-03-01"],
            "since 2026-02-28, and .* can be run from 2026-03-23 on",
        ),
        (["2026-02-06", "2026-02-12", "2026-02-19", "2026-02-26", "2026-02-27"], "from 2026-03-01 on"),
        (["2026-02-06", "2026-02-12", "2026-02-19", "2026-02-26", "2026-02-28"], "since 2026-02-06$"),
    ],
)
def test_the_day_from_which_on_a_model_can_be_promoted_is_of_plausible_records(
    settings: Settings, days: list[str], words: str
) -> None:
    store = Tables(settings.tables.root)
    for day in days:
        store.replace_rows(ACCESSES, [row(ACCESSES, event_id=day)], (day,))
    store.replace_rows(ACCESSES, [], ("2026-01-31",))
    status = run(settings, now_s=NOW_S)
    (alarm,) = status.alarms
    assert re.search(words, alarm.text), alarm.text
    (to_prometheus,) = (value for name, *_, value in of_status(status) if name == "cachecast_alarm")
    assert to_prometheus == ("can be run" not in alarm.text), "nobody is woken to wait"
    if "can be run" not in alarm.text:
        assert "`cachecast evaluate --from 2026-02-08`" in alarm.remedy


@pytest.mark.parametrize(("deadline", "late_at_s"), [("auto", 7200), ("30m", 5400), ("3h", 14400)])
def test_the_chain_of_a_decision_time_is_due_a_deadline_after_it(
    settings: Settings, tables: Tables, deadline: str, late_at_s: int
) -> None:
    env = {"CACHECAST_AIRFLOW__DEADLINE": deadline, "CACHECAST_PUSH__JOURNAL": settings.push.journal}
    env["CACHECAST_AIRFLOW__PULL"] = '{ rucio_server = "in-use", rucio_traces = "/t" }'
    conf = Path(settings.push.journal).parent
    with_conf = Settings.load(conf, tables=settings.tables.root, env=env)
    begun_s = parse_as_of(AT)
    assert alarms(with_conf, begun_s + late_at_s - 1) == set()
    (late,) = run(with_conf, now_s=begun_s + late_at_s).alarms
    assert late.name == "prediction-late"
    assert " --pull rucio_traces=/t --pull rucio_server=in-use`" in late.remedy
    tables.replace_rows(
        PREDICTIONS, [row(PREDICTIONS, did="a")], ("2026-03-01", "2026-03-01T05:00:00Z", "default")
    )
    assert {"plan-late"} == {
        name for name, _ in alarms(with_conf, begun_s + 3600 + late_at_s - 1)
    } or late_at_s > 7200


def test_a_queue_that_does_not_keep_its_word_or_grows_is_named(settings: Settings, tables: Tables) -> None:
    key = ("2026-03-01", AT, "liar")
    entry = row(QUEUE, job_id="1", input="/f", is_dataset=False, n_jobs=1)
    tables.replace_rows(QUEUE, [entry], key)
    (report,) = run(settings, now_s=NOW_S).queues
    assert (report.queue, report.inputs, report.believed, report.files) == ("liar", 1, 1.0, None)
    assert alarms(settings) == set()
    judged = row(ANNOUNCED, files=900, read_files=30, claimed=900.0, kept=30.0, read_after_s=7200.0)
    tables.replace_rows(ANNOUNCED, [judged], ("2026-02-26", "liar"))
    (alarm,) = run(settings, now_s=NOW_S).alarms
    assert (alarm.name, alarm.about) == ("queue-doubted", "liar")
    assert "30 of 900 files that it announced were read in time, half of them within 2.0 h" in alarm.text
    tables.replace_rows(ANNOUNCED, [], ("2026-02-26", "liar"))
    later = (key[0], "2026-03-01T04:30:00Z", "liar")
    tables.replace_rows(QUEUE, [entry | {"job_id": str(n)} for n in range(10_001)], later)
    (alarm,) = run(settings, now_s=NOW_S).alarms
    assert alarm.text.startswith("queue liar names 10001 inputs, 1 before: does it repeat or invent work?")


def figures(path: Path) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The figures in a file, as Prometheus parses them."""
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_the_status_is_told_to_prometheus(settings: Settings, tables: Tables, tmp_path: Path) -> None:
    prometheus.leave(str(tmp_path / "prom"), "state", of_status(run(settings, now_s=NOW_S)), pytest.fail)
    samples = figures(tmp_path / "prom" / "cachecast-state.prom")
    assert samples["cachecast_status_seen_seconds"] == [({"region": "default"}, NOW_S)]
    assert samples["cachecast_cache_held_bytes"] == [({"cache": "xc1"}, 800e9)]
    assert samples["cachecast_plan_as_of_seconds"] == [({"cache": "xc1"}, parse_as_of(AT))]
    assert ({"cache": "xc1", "action": "pin"}, 2.0) in samples["cachecast_plan_items"]
    assert "cachecast_alarm" not in samples


def test_a_prefill_hides_no_plan(settings: Settings, tables: Tables) -> None:
    prefill = ("2026-03-01", "2026-03-01T04:30:00Z", "xc1")
    tables.replace_rows(PLANS, [row(PLANS, item_id="p", action="prefetch", expires_at=ENDS)], prefill)
    tables.replace_rows(RECEIPTS, [row(RECEIPTS, item_id="p", state="done")], prefill)
    (cache,) = run(settings, now_s=NOW_S).caches
    assert (cache.plan_at, cache.plan) == (AT, {"pin": 2, "evict": 1})
    assert (cache.push_at, cache.push) == (AT, {"done": 1})
    assert newest(settings, "plans", cache="xc1") == parse_as_of(AT)
    tables.replace_rows(RECEIPTS, [row(RECEIPTS, item_id="p", state="failed")], prefill)
    (failed,) = run(settings, now_s=NOW_S).alarms
    assert failed.name == "push-failed" and failed.text.startswith("1 of 2 items")
    tables.replace_rows(RECEIPTS, [row(RECEIPTS, item_id="p", state="done")], prefill)
    tables.replace_each(RECEIPTS, [], drop=[("2026-03-01", AT, "xc1")])
    assert alarms(settings) == {("not-pushed", "xc1")}


PUSHED = {"region": "emea", "command": "push run", "cache": "xc1"}


@pytest.mark.parametrize(
    ("end", "failed"), [(None, 0.0), (NotDueError("later"), 0.0), (SystemExit(1), 1.0), (RuntimeError(), 1.0)]
)
def test_a_command_leaves_its_figures_however_it_ends(
    tmp_path: Path, end: BaseException | None, failed: float
) -> None:
    with (
        contextlib.suppress(SystemExit, RuntimeError, NotDueError),
        prometheus.measured(str(tmp_path), PUSHED, warn=pytest.fail),
    ):
        if end is not None:
            raise end
    samples = figures(tmp_path / "cachecast-emea-push-run-xc1.prom")
    assert samples["cachecast_job_failed"] == [(PUSHED, failed)]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_named_from_outside_makes_no_path(tmp_path: Path) -> None:
    with prometheus.measured(str(tmp_path / "a"), PUSHED | {"cache": "../../b"}, warn=pytest.fail):
        pass
    (file,) = tmp_path.rglob("*.prom")
    assert file.parent == tmp_path / "a"
    assert re.fullmatch(r"[A-Za-z0-9._-]+", file.name)


def test_figures_that_cannot_be_written_fail_no_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    with prometheus.measured(str(tmp_path / "file"), PUSHED, warn=warnings.append):
        pass
    assert len(warnings) == 1
    env = {"CACHECAST_METRICS__FOLDER": "file", "CACHECAST_PUSH__JOURNAL": "journal.db"}
    words = ["status", "--json", "--tables", str(tmp_path / "tables")]
    answer = CliRunner().invoke(app, words, env={key: str(tmp_path / name) for key, name in env.items()})
    assert [alarm["name"] for alarm in json.loads(answer.stdout)["alarms"]] == ["no-champion"]


def test_two_regions_with_one_folder_leave_no_series_twice(tmp_path: Path) -> None:
    env = {"CACHECAST_METRICS__FOLDER": str(tmp_path / "m"), "CACHECAST_PUSH__JOURNAL": str(tmp_path / "j")}
    for region in ("apac", "emea"):
        words = ["status", "--tables", str(tmp_path / region)]
        CliRunner().invoke(app, words, env=env | {"CACHECAST_REGION__NAME": region})
    files = sorted((tmp_path / "m").iterdir())
    named = [f"cachecast-{region}-{of}.prom" for region in ("apac", "emea") for of in ("state", "status")]
    assert [file.name for file in files] == named
    samples = [sample for file in files for sample in figures(file).items()]
    series = [(name, *sorted(labels.items())) for name, some in samples for labels, _ in some]
    assert len(series) == len(set(series)) > len(files)


def test_a_folder_that_caches_share_has_one_alarm_and_one_that_hangs_none(
    settings: Settings, tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "captures").mkdir()
    (folder / "gstream-000000000001-20231114T221320Z.capture").write_bytes(b"1" * 900)
    cache = settings.caches["xc1"].model_copy(update={"gstream": folder})
    caches = {name: cache.model_copy(update={"name": name}) for name in ("xc2", "xc1")}
    collect = settings.collect.model_copy(update={"quota": 1000})
    both = settings.model_copy(update={"caches": caches, "collect": collect})
    assert [about for name, about in alarms(both) if name == "collector-full"] == ["xc1"]
    monkeypatch.setattr(files, "silent", lambda *_, **__: "it hangs")
    assert "collector-full" not in dict(alarms(both))


def test_a_steward_is_shown_with_its_alarms_and_missed_when_it_is_silent(
    settings: Settings, tables: Tables
) -> None:
    fields = {"version": "cachecast-emea/3", "version_since_s": NOW_S - 60, "server": "v6.2.1"}
    calm = steward_figures(at_s=NOW_S, first_files=3, first_bytes=5 * 10**9, **fields)
    path = settings.steward.figures("xc1")
    path.parent.mkdir(parents=True)
    calm.write(path)
    status = run(settings, now_s=NOW_S + 200)
    assert status.alarms == () and status.caches[0].steward is not None
    dataclasses.replace(calm, alarms={"steward-blind": "no collector"}).write(path)
    assert alarms(settings, NOW_S + 200) == {("steward-blind", "xc1")}
    assert alarms(settings, NOW_S + 400) == {("steward-silent", "xc1")}
    full = [row(CONTENTS, did="a", bytes_on_disk=990 * 10**9)]
    tables.replace_rows(CONTENTS, full, ("2026-03-01", AT, "xc1"))
    for used_bytes, high_bytes, source in (
        (500, 950, ""),
        (960, 950, "steward's look"),
        (0, 0, f"inventory of {AT}"),
    ):
        fuller = dataclasses.replace(calm, used_bytes=used_bytes * 10**9, high_bytes=high_bytes * 10**9)
        fuller.write(path)
        raised = run(settings, now_s=NOW_S + 200).alarms
        assert len(raised) == bool(source) and all(source in alarm.text for alarm in raised)
    assert "`cachecast scan --cache xc1` on its host looks again" in raised[0].remedy
    tables.replace_rows(CONTENTS, [], ("2026-03-01", AT, "xc1"))
    path.write_text('{"of": "another version"}')
    damaged = run(settings, now_s=NOW_S)
    (alarm,) = damaged.alarms
    assert (damaged.caches[0].steward, alarm.name) == (None, "steward-silent")
    assert "cannot read what the steward reports in xc1.json: it is damaged" in alarm.text
    path.unlink()
    path.symlink_to(path)
    (alarm,) = run(settings, now_s=NOW_S).alarms
    assert "xc1.json: Too many levels of symbolic links; let this account read it" in alarm.text
    line, since = steward_line(calm), as_of_label(NOW_S - 60)
    assert line.startswith(f"lru (cachecast-emea/3 serves since {since}) beside XRootD 6.2.1: ")
    assert line.endswith("3 files (5 GB) go first, 0 B saved against LRU since 1970-01-01T00:00:00Z")
    metrics = {name: value for name, _, labels, value in of_steward(calm)}
    assert metrics["cachecast_steward_order_since_seconds"] == NOW_S - 60
    assert metrics["cachecast_steward_follows"] == 1 and "cachecast_steward_alarm" not in metrics
