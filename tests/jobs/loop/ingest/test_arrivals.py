"""Whether sources delivered what they usually do."""

import datetime as dt
from pathlib import Path

import pytest
from access_rows import accesses

from features.common.errors import NotDueError
from features.common.times import DAY_S, day_label, parse_as_of
from features.results import ARRIVALS, PROMOTIONS
from features.schema import ACCESSES, PREDICTIONS, REJECTS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.ingest import arrivals
from jobs.operator.operate import due, status

AT = "2026-03-30T04:00:00Z"
T = parse_as_of(AT)
HOUR_S = 3600


def site(folder: Path, **env: str) -> Settings:
    variables = {
        "CACHECAST_AIRFLOW__PULL": '{ rucio_traces = "/t/", rucio_files = "/f/" }',
        "CACHECAST_ARRIVALS__LEAST": "10",
        "CACHECAST_PUSH__JOURNAL": str(folder / "journal.db"),
    }
    return Settings.load(tables=str(folder / "tables"), env=variables | env)


def read(settings: Settings, n_by_end: dict[int, int]) -> None:
    """So many reads of a source, known half an hour before each time."""
    ends = (end_s for end_s, n in n_by_end.items() for _ in range(n))
    rows = [{"accessed_at": dt.datetime.fromtimestamp(end_s - HOUR_S // 2, dt.UTC)} for end_s in ends]
    Tables(settings.tables.root).replace_arrow(ACCESSES, accesses(rows, source="rucio_traces", size_bytes=1))


def rejected(settings: Settings, **n_by_reason: int) -> None:
    rows = [
        {"source": "rucio_traces", "input": "x", "reason": reason.replace("_", " "), "n_rows": n}
        for reason, n in n_by_reason.items()
    ]
    Tables(settings.tables.root).replace_rows(REJECTS, rows, (day_label(T),))


def judged(settings: Settings) -> arrivals.Arrival:
    (arrival,) = arrivals.run(settings, as_ofs=[T])
    return arrival


# Busy on this weekday at this hour; on all other days one read.
PAST = {T - n * DAY_S: 40 if n % 7 == 0 else 1 for n in range(1, 30)}


@pytest.mark.parametrize(("n_rows", "why"), [(20, ""), (19, "19 reads in 1h, where 40 are usual")])
def test_the_usual_volume_is_that_of_the_hour_and_weekday(tmp_path: Path, n_rows: int, why: str) -> None:
    settings = site(tmp_path)
    read(settings, PAST | {T: n_rows})
    arrival = judged(settings)
    assert (arrival.rows, arrival.expected, arrival.why) == (n_rows, 40, why)
    (row,) = Tables(settings.tables.root).read_arrow(ARRIVALS).to_pylist()
    assert (row["as_of"], row["source"], row["complete"], row["why"]) == (AT, "rucio_traces", not why, why)


def test_little_past_says_nothing_of_the_volume_and_a_silent_source_is_told(tmp_path: Path) -> None:
    settings = site(tmp_path)
    read(settings, {T - DAY_S - 2 * HOUR_S: 50})
    arrival = judged(settings)
    assert (arrival.expected, arrival.why) == (None, "nothing newer than 1d")


def test_faulty_records_count_and_what_is_no_read_does_not(tmp_path: Path) -> None:
    settings = site(tmp_path)
    read(settings, {T: 30})
    sound = ["not_a_read", "our_own_prefetch_or_touch", "still_open", "no_accesses", "not_of_the_f-stream"]
    sound += ["close_without_its_open", "transfer_not_done:_FAILED"]
    rejected(settings, **dict.fromkeys(sound, 500), unparsable_time=7)
    assert judged(settings).why == ""
    rejected(settings, unparsable_time=30)
    assert judged(settings).why == "50 % of the day's records were rejected"


def test_a_day_judged_again_has_the_same_share_of_faulty_records_at_all_its_hours(tmp_path: Path) -> None:
    settings = site(tmp_path)
    read(settings, {T + n * HOUR_S: 30 for n in range(19)})
    rejected(settings, unparsable_time=30)
    assert judged(settings).rejected_share == 30 / (30 + 19 * 30)


def test_late_records_complete_their_decision_time(tmp_path: Path) -> None:
    settings = site(tmp_path)
    read(settings, PAST | {T: 1})
    assert judged(settings).why
    read(settings, {T: 40})
    assert not judged(settings).why


def test_an_incomplete_time_is_an_alarm_and_is_skipped_where_the_site_says_so(tmp_path: Path) -> None:
    settings = site(tmp_path, CACHECAST_ARRIVALS__INCOMPLETE="skip")
    read(settings, PAST | {T: 1})
    due.check_complete(settings, as_of_s=T)
    judged(settings)
    with pytest.raises(NotDueError, match="rucio_traces is incomplete: 1 reads"):
        due.check_complete(settings, as_of_s=T)
    due.check_complete(site(tmp_path), as_of_s=T)
    incomplete = [alarm for alarm in status.run(settings, now_s=T).alarms if alarm.name == "incomplete"]
    assert [(alarm.about, alarm.text) for alarm in incomplete] == [
        ("rucio_traces", f"{AT}: 1 reads in 1h, where 40 are usual")
    ]


def test_a_decision_time_of_the_future_hides_no_alarm(tmp_path: Path) -> None:
    settings = site(tmp_path)
    read(settings, PAST | {T: 1})
    for table in (PREDICTIONS, ARRIVALS):
        Tables(settings.tables.root).replace_rows(table, [], MomentKey.at(T + DAY_S, settings.region.name))
    judged(settings)
    promoted: dict[str, object] = {"action": "promote", "model_version": "m/1", "champion": "m/1"}
    promoted |= {"reasons": [], "comparisons": ""}
    Tables(settings.tables.root).replace_rows(PROMOTIONS, [promoted], MomentKey.at(T, settings.region.name))
    names = {alarm.name for alarm in status.run(settings, now_s=T).alarms}
    assert {"incomplete", "prediction-late"} <= names
