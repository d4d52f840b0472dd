"""How far queues are believed: what each announced, against the reads that a test planted."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from access_rows import accesses
from table_rows import put_files

from features.common.times import as_of_label, day_label
from features.results import ANNOUNCED
from features.schema import ACCESSES
from jobs.ground.settings.tree import CacheSettings
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import judging, queue
from jobs.loop.ingest.announced import DOUBTED, believed, reports, share_kept
from jobs.loop.ingest.judging import SiteNames
from jobs.loop.ingest.queue_entries import check_entries
from jobs.loop.steward.running import QueueReader

pytestmark = pytest.mark.usefixtures("names_once")
DAY0 = 1_772_323_200  # 2026-03-01T00:00:00Z
HOUR_S, DAY_S = 3600, 86400
JUDGED = DAY0 + 2 * DAY_S + 6 * HOUR_S
"""The entries of the first day have run out, and the reads of the last of them are known."""
N, OF_SET = 400, 20
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://xc1:1", site="EDGE", capacity=10**12)


def at(moment_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(moment_s, dt.UTC)


def name(i: int) -> str:
    return f"/store/mc/Run3/A/AOD/v1/000/f{i}.root"


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Tables that know `N` files in datasets of `OF_SET`."""
    made = Tables(str(tmp_path / "tables"))
    put_files(made, ({"name": name(i), "dataset": f"cms:/S{i // OF_SET}/R-v1/AOD"} for i in range(N)))
    return made


class Read(NamedTuple):
    """A read of a file; known when it began, or at `known_s`."""

    file: int
    at_s: float
    known_s: float | None = None


def plant(tables: Tables, reads: Sequence[Read]) -> None:
    rows = [
        {"name": name(read.file), "accessed_at": at(read.at_s)}
        | ({} if read.known_s is None else {"known_at": at(read.known_s)})
        for read in reads
    ]
    tables.replace_arrow(ACCESSES, accesses(rows))


def say(
    tables: Tables,
    at_s: int,
    entries: Sequence[dict[str, Any]],
    *,
    of: str = "q",
    sites: Mapping[str, SiteNames] = {},
) -> None:
    """What a queue answers at a time, judged as `cachecast queue` does."""
    raw = [{"job_id": str(n)} | entry for n, entry in enumerate(entries)]
    checked = check_entries(raw, as_of_s=at_s, stale_s=DAY_S)
    queue.write(tables, checked, queue=of, source=of, as_of_s=at_s)
    judging.judge(tables, of, as_of_s=at_s, stale_s=DAY_S, sites=sites)


def files(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"file": name(i)} | more for i in numbers]


def known(tables: Tables, as_of_s: int) -> Any:
    return queue.known_work(tables, as_of_s=as_of_s, cache="xc1", site="EDGE")


def certainties(tables: Tables, as_of_s: int) -> dict[str, float]:
    rows = known(tables, as_of_s).files.to_pylist()
    return {row["did"].removeprefix("cms:"): round(row["certainty"], 6) for row in rows}


@pytest.mark.parametrize("seed", range(4))
def test_equals_a_plain_loop_over_what_was_said_and_read(tables: Tables, seed: int) -> None:
    draw = np.random.default_rng(seed)
    reads = [
        Read(int(draw.integers(N)), DAY0 + s, DAY0 + s + int(draw.choice([0, HOUR_S, 3 * DAY_S])))
        for s in draw.integers(0, 3 * DAY_S, 300).tolist()
    ]
    plant(tables, reads)
    said: dict[int, list[tuple[int, int, bool, float]]] = {}
    for moment_s in sorted(draw.integers(DAY0, DAY0 + DAY_S, 5).tolist()):
        entries, sure = [], 0.25 * int(draw.integers(1, 5))
        for i in sorted(set(draw.integers(0, N, 30).tolist())):
            start_s = moment_s + int(draw.integers(0, 20)) * HOUR_S
            entries.append({"file": name(i), "certainty": sure, "expected_start": as_of_label(start_s)})
            said.setdefault(i, []).append((moment_s, max(moment_s, start_s) + DAY_S, False, sure))
        of_set = int(draw.integers(N // OF_SET))
        entries.append({"dataset": f"/S{of_set}/R-v1/AOD", "certainty": 0.5})
        for i in range(of_set * OF_SET, (of_set + 1) * OF_SET):
            said.setdefault(i, []).append((moment_s, moment_s + DAY_S, True, 0.5))
        say(tables, moment_s, entries)
    say(tables, JUDGED + DAY_S, [])
    claimed, sum_kept, delays = 0.0, 0.0, []
    for i, claims in said.items():
        from_s, until_s = min(c[0] for c in claims), max(c[1] for c in claims)
        by_file, by_set = (max((c[3] for c in claims if c[2] == how), default=0) for how in (False, True))
        sure = 1 - (1 - by_file) * (1 - by_set)
        in_time = [
            r.at_s
            for r in reads
            if r.file == i and from_s <= r.at_s < until_s and (r.known_s or 0) <= JUDGED + DAY_S
        ]
        claimed += sure**2
        if in_time:
            sum_kept += sure
            delays.append(min(in_time) - from_s)
    (row,) = tables.read_arrow(ANNOUNCED).to_pylist()
    assert (row["day"], row["queue"], row["files"], row["read_files"]) == (
        day_label(DAY0), "q", len(said), len(delays)
    )  # fmt: skip
    assert (row["claimed"], row["kept"]) == (pytest.approx(claimed), pytest.approx(sum_kept))
    assert row["read_after_s"] == pytest.approx(np.median(delays))


def test_only_days_whose_time_had_run_out_count_and_only_what_was_known_then(tables: Tables) -> None:
    plant(tables, [Read(i, DAY0 + HOUR_S) for i in range(100)] + [Read(300, DAY0 + 2 * DAY_S)])
    say(tables, DAY0, files(*range(200)))
    say(tables, JUDGED - 1, [])
    assert not tables.exists(ANNOUNCED)
    say(tables, JUDGED, [])
    (row,) = tables.read_arrow(ANNOUNCED).to_pylist()
    assert (row["files"], row["read_files"], row["read_after_s"]) == (200, 100, HOUR_S)
    assert believed(tables, as_of_s=JUDGED - 1) == {}
    assert believed(tables, as_of_s=JUDGED) == {"q": pytest.approx((50 + 100) / (50 + 200))}
    # A day is judged once, and a second answer of the same time changes nothing.
    number = tables.head(ANNOUNCED).number
    say(tables, JUDGED, [])
    assert tables.head(ANNOUNCED).number == number


def test_without_records_of_reads_nobody_is_a_liar(tables: Tables) -> None:
    say(tables, DAY0, files(*range(200)))
    say(tables, JUDGED, files(1))
    assert not tables.exists(ANNOUNCED)
    plant(tables, [Read(0, DAY0 - DAY_S)])
    say(tables, JUDGED, files(1))
    assert believed(tables, as_of_s=JUDGED) == {}
    (report,) = reports(tables, as_of_s=JUDGED)
    assert (report.believed, report.files) == (1.0, None)
    assert str(report) == f"1 inputs at {as_of_label(JUDGED)}; nothing that it announced has run out yet"


def test_shares_are_shrunk_and_forget() -> None:
    assert share_kept([]) == 1
    assert share_kept([(10, 0)]) == pytest.approx(50 / 60), "few files are no proof"
    assert share_kept([(10**6, 0)]) == pytest.approx(0.2), "a large task decides no more than a day"
    assert share_kept([(10**6, 0)]) < DOUBTED
    assert share_kept([(200, 200)] + [(200, 0)] * 13) > 0.5, "who keeps his word again is believed again"
    assert share_kept([(200, 900)] * 5 + [(200, 0)] * 5) == share_kept([(200, 200)] * 5 + [(200, 0)] * 5)
    assert share_kept([(200, 0)] * 14) > 0
    assert share_kept([(0, 0)] * 14) == 1


def lied_beside_a_true_one(tables: Tables, *, lies: Sequence[dict[str, Any]] = ()) -> None:
    """Two days of two queues: all that `true` announces is read, and nothing else."""
    plant(tables, [Read(i, DAY0 + d * DAY_S + 5 * HOUR_S) for i in range(200) for d in (0, 1)])
    for moment_s in (DAY0, DAY0 + DAY_S):
        say(tables, moment_s, files(*range(200)), of="true")
        say(tables, moment_s, lies or files(*range(200, 400)), of="liar")


def test_a_liar_beside_a_true_queue_counts_for_nothing_and_is_named(tables: Tables) -> None:
    lied_beside_a_true_one(tables)
    assert set(certainties(tables, DAY0 + DAY_S).values()) == {1.0}
    for of, numbers in (("true", range(200)), ("liar", range(100))):
        say(tables, JUDGED, files(*numbers), of=of)
    assert believed(tables, as_of_s=JUDGED) == {"true": 1.0, "liar": pytest.approx(0.2)}
    answer = known(tables, JUDGED)
    assert certainties(tables, JUDGED) == {name(i): 1.0 for i in range(200)}
    assert answer.n_doubted == 100
    assert set(answer.files["queues"].to_pylist()) == {"true"}
    assert QueueReader(tables, CACHE).due_s(JUDGED).keys() == {name(i) for i in range(200)}
    true, liar = sorted(reports(tables, as_of_s=JUDGED), key=lambda report: -report.believed)
    assert (true.files, true.read_files, true.read_after_s) == (200, 200, 5 * HOUR_S)
    assert "0 of 200 files that it announced were read in time; believed to 20 %" in str(liar)


def test_what_is_half_believed_is_half_as_likely_however_often_it_is_repeated(tables: Tables) -> None:
    half = files(*range(100), *range(200, 300))
    lied_beside_a_true_one(tables, lies=half)
    again = [
        {"file": spelled, "job_id": f"{spelled} {n}"}
        for spelled in (name(300), f"cms:{name(300)}")
        for n in range(50)
    ]
    again += [{"dataset": spelled} for spelled in ("/S15/R-v1/AOD", "cms:/S15/R-v1/AOD")]
    say(tables, JUDGED, again, of="liar")
    share = believed(tables, as_of_s=JUDGED)["liar"]
    assert share == pytest.approx((50 + 100) / (50 + 200))
    assert certainties(tables, JUDGED)[name(300)] == pytest.approx(share)
    # Two queues that say it are surer than one.
    say(tables, JUDGED, files(300, certainty=0.5), of="true")
    assert certainties(tables, JUDGED)[name(300)] == pytest.approx(1 - 0.5 * (1 - share))
    row = next(row for row in known(tables, JUDGED).files.to_pylist() if row["did"].endswith("f300.root"))
    assert row["queues"] == "liar, true"


LIES: dict[str, list[dict[str, Any]]] = {
    "in many jobs of little certainty": [
        {"file": name(i), "certainty": 0.05, "job_id": f"{i}.{n}"} for i in range(200, 400) for n in range(60)
    ],
    "beside much that is read anyway": files(*range(200), certainty=0.001) + files(*range(200, 400)),
    "of the far future": files(*range(200, 400), expected_start=as_of_label(DAY0 + 40 * DAY_S)),
    "by datasets": [{"dataset": f"/S{k}/R-v1/AOD"} for k in range(10, 20)],
}


@pytest.mark.parametrize("how", LIES)
def test_a_liar_is_doubted_however_it_lies(tables: Tables, how: str) -> None:
    lied_beside_a_true_one(tables, lies=LIES[how])
    later = [entry | {"expected_start": as_of_label(DAY0 + 50 * DAY_S)} for entry in LIES[how]]
    say(tables, JUDGED, later if how == "of the far future" else [], of="liar")
    assert believed(tables, as_of_s=JUDGED)["liar"] < DOUBTED


def test_work_of_the_far_future_that_still_stands_is_not_judged_yet(tables: Tables) -> None:
    lied_beside_a_true_one(tables, lies=LIES["of the far future"])
    say(tables, JUDGED, LIES["of the far future"], of="liar")
    assert believed(tables, as_of_s=JUDGED)["liar"] == 1
    (report,) = [report for report in reports(tables, as_of_s=JUDGED) if report.queue == "liar"]
    assert (report.files, report.read_files) == (0, 0)


def test_one_empty_answer_withdraws_nothing_and_a_second_does(tables: Tables) -> None:
    plant(tables, [Read(399, DAY0 + d * DAY_S) for d in range(4)])
    for day in range(3):
        say(tables, DAY0 + day * DAY_S, files(*range(200), expected_start=as_of_label(JUDGED + 3 * DAY_S)))
    say(tables, JUDGED, [])
    assert believed(tables, as_of_s=JUDGED) == {"q": 1.0}
    say(tables, JUDGED + DAY_S, [])
    assert believed(tables, as_of_s=JUDGED + DAY_S)["q"] < DOUBTED


def answered(
    tables: Tables,
    days: int,
    named: Callable[[int], list[dict[str, Any]]],
    *,
    at_hours: Sequence[int] = (0, 12),
) -> int:
    """What a queue answers at these hours of `days` in turn, by the hour; the time of the last answer."""
    for hour in (24 * day + hour for day in range(days) for hour in at_hours):
        say(tables, DAY0 + hour * HOUR_S, named(hour))
    return DAY0 + hour * HOUR_S


def test_who_waits_for_days_is_believed_when_he_is_read_at_last(tables: Tables) -> None:
    """Each job waits for four days, and reads an hour after it was named for the last time."""
    plant(tables, [Read(i, DAY0 + (24 * 4 + 24 * (i // 50) - 2) * HOUR_S) for i in range(400)])

    def waiting(hour: int) -> list[dict[str, Any]]:
        return files(*(i for i in range(400) if 24 * (i // 50) <= hour < 24 * (i // 50) + 94))

    last_s = answered(tables, 11, waiting)
    rows = tables.read_arrow(ANNOUNCED).to_pylist()
    assert sum(row["read_files"] for row in rows) == sum(row["files"] for row in rows) > 400
    assert believed(tables, as_of_s=last_s) == {"q": 1.0}


LASTING: dict[str, tuple[tuple[int, ...], Callable[[int], range]]] = {
    "without end": ((0,), lambda hour: range(200)),
    "every second day": ((0,), lambda hour: range(200) if hour // 24 % 2 else range(0)),
    "by turns": ((0, 12), lambda hour: range(100) if hour // 12 % 2 else range(100, 200)),
    "but not when it is judged": ((0, 6), lambda hour: range(0) if hour % 24 == 6 else range(200)),
}


@pytest.mark.parametrize("how", LASTING)
def test_a_lie_that_is_told_anew_for_ever_is_found(tables: Tables, how: str) -> None:
    plant(tables, [Read(399, DAY0 + d * DAY_S) for d in range(12)])
    at_hours, named = LASTING[how]
    last_s = answered(tables, 11, lambda hour: files(*named(hour)), at_hours=at_hours)
    assert believed(tables, as_of_s=last_s)["q"] < DOUBTED


def test_what_was_withdrawn_is_judged_though_its_work_stood_for_long(tables: Tables) -> None:
    plant(tables, [Read(399, DAY0 + d * DAY_S) for d in range(6)])
    last_s = answered(tables, 6, lambda hour: files(*range(200 if hour < 60 else 0)), at_hours=(0, 6, 12, 18))
    (row,) = [row for row in tables.read_arrow(ANNOUNCED).to_pylist() if row["files"]]
    assert (row["day"], row["files"], row["read_files"]) == (day_label(DAY0 + 2 * DAY_S), 200, 0)
    assert believed(tables, as_of_s=last_s)["q"] < DOUBTED


@pytest.mark.parametrize(("where", "n_read"), [({"site": "EDGE"}, 200), ({}, 250)])
def test_a_read_at_another_site_keeps_no_word(tables: Tables, where: dict[str, str], n_read: int) -> None:
    """Work of no site is read at any of ours."""
    sites = {"EDGE": SiteNames(["EDGE", "T2_DE_EDGE"], ["xc1"]), "FAR": SiteNames(["FAR"], ["xc9"])}
    places: list[dict[str, Any]] = [
        {"cache": "xc9", "site": "FAR"},
        {"cache": "xc1"},
        {"site": "T2_DE_EDGE"},
        {"site": "T2_DE_EDGEWAY"},
        {"cache": "xc1", "site": "FAR"},
        {},
    ]
    rows = [
        {"name": name(50 * k + i), "accessed_at": at(DAY0 + HOUR_S)} | place
        for k, place in enumerate(places)
        for i in range(50)
    ]
    tables.replace_arrow(ACCESSES, accesses(rows))
    elsewhere = files(*range(300), site="NOBODY", job_id="n")
    say(tables, DAY0, files(*range(300), **where) + elsewhere, sites=sites)
    say(tables, JUDGED, [], sites=sites)
    (row,) = tables.read_arrow(ANNOUNCED).to_pylist()
    assert (row["files"], row["read_files"]) == (300, n_read)


def test_where_no_read_of_a_site_is_known_its_queue_is_not_judged_yet(tables: Tables) -> None:
    sites = {"EDGE": SiteNames(["EDGE"], ["xc1"]), "FAR": SiteNames(["FAR"], ["xc9"])}
    rows = [{"name": name(300), "accessed_at": at(DAY0 + HOUR_S), "site": "FAR"}]
    tables.replace_arrow(ACCESSES, accesses(rows))
    say(tables, DAY0, files(*range(200), site="EDGE"), sites=sites)
    say(tables, JUDGED, [], sites=sites)
    assert not tables.exists(ANNOUNCED)


def test_days_without_a_queue_are_made_good_when_it_is_read_again(tables: Tables) -> None:
    plant(tables, [Read(0, DAY0 + d * DAY_S) for d in range(12)])
    for day in range(3):
        say(tables, DAY0 + day * DAY_S, files(*range(200)))
    say(tables, DAY0 + 9 * DAY_S, [])
    assert [row["day"] for row in tables.read_arrow(ANNOUNCED).sort_by("day").to_pylist()] == [
        day_label(DAY0 + day * DAY_S) for day in range(3)
    ]
