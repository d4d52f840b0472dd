"""What `outcomes` accounts and shows: read, pending and unread; a line for tables without rows."""

import dataclasses
import datetime as dt
import json
from pathlib import Path

from access_rows import accesses
from typer.testing import CliRunner, Result

from features.schema import ACCESSES, OUTCOMES, PLANS, RECEIPTS
from jobs.cli.main import app
from jobs.ground.caches.steward_days import StewardDay, keep
from jobs.ground.store.tables import Tables

KEY = ("2026-03-01", "2026-03-01T00:00:00Z", "xc1")
EARNED = {"item_id": "1", "did": "x:f", "action": "pin", "n_hits": 1}
EARNED |= {"bytes_saved": 5, "bytes_spent": 0, "bytes_wasted": 0, "first_hit_delay_s": 1.0}


def outcomes(folder: Path, rows: list[dict[str, object]] | None, *words: str) -> Result:
    """The command after `rows` were accounted; None: no plan was."""
    tables = Tables(str(folder / "tables"))
    if rows is not None:
        tables.replace_rows(OUTCOMES, rows, KEY)
        tables.replace_rows(PLANS, [], KEY)
    (folder / "site.toml").write_text(
        '[caches.xc1]\nname = "xc1"\nkind = "xcache"\nurl = "root://xc1"\ncapacity = "1TB"\n'
    )
    options = ["--cache", "xc1", "--conf", str(folder / "site.toml"), "--tables", tables.root]
    return CliRunner().invoke(app, ["outcomes", *options, *words])


def test_tables_without_rows_are_a_line_with_the_remedy(tmp_path: Path) -> None:
    lines = outcomes(tmp_path, []).stdout.splitlines()
    assert lines == [
        "plans: none of them completed an item; see `cachecast push status`",
        "days against LRU: none judged; run `cachecast outcomes --cache xc1 --day …`",
    ]
    assert "model versions" in outcomes(tmp_path, [EARNED]).stdout


def test_days_are_checked(tmp_path: Path) -> None:
    assert "not a day: 'soon'" in str(outcomes(tmp_path, [], "--from", "soon").exception)
    page = outcomes(tmp_path, [], "--day", "2026-03-01", "--out", str(tmp_path / "page.html"))
    assert "leave out --as-of and --day" in str(page.exception)


def test_days_of_a_steward_are_shown_without_any_plan(tables: Tables, tmp_path: Path) -> None:
    began = dt.datetime(2026, 3, 1, 6, tzinfo=dt.UTC)
    first = StewardDay(began, 3600, "lru, learned", "cachecast-emea/1", 50, 70, 3, 30)
    keep(tables, first, cache="xc1", day="2026-03-01")
    keep(tables, first, cache="other", day="2026-03-01")
    keep(tables, dataclasses.replace(first, watched_s=7200), cache="xc1", day="2026-03-01")
    later = dataclasses.replace(
        first, started_at=began + dt.timedelta(hours=3), orders="lru", model_version=None
    )
    keep(tables, later, cache="xc1", day="2026-03-01")
    keep(tables, later, cache="xc1", day="2026-03-02")
    answer = json.loads(outcomes(tmp_path, None, "--json", "--out", str(tmp_path / "page.html")).stdout)
    assert [day["day"] for day in answer["steward"]] == ["2026-03-01", "2026-03-02"]
    assert answer["steward"][0] == {
        **{"day": "2026-03-01", "orders": "lru, learned", "model_version": "cachecast-emea/1"},
        **{"watched_s": 7200 + 3600, "wan_bytes": 100, "lru_wan_bytes": 140, "saved_wan_bytes": 40},
        **{"evicted_files": 6, "evicted_bytes": 60},
    }
    page = (tmp_path / "page.html").read_text().replace("\u00a0", " ")
    assert (
        "By its own count the steward saved 60 B of WAN traffic against plain LRU (28.6 %) on 2 days." in page
    )
    assert "days of the steward" in outcomes(tmp_path, None).stdout


PLANNED = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def pushed(tables: Tables) -> None:
    """A plan of two prefetches of 100 bytes, done at 0:10:00.6, that expires after four days."""
    items = [{"item_id": name, "did": f"x:{name}", "action": "prefetch"} for name in "ab"]
    done = {"state": "done", "attempts": 1, "bytes": 100, "seconds": 1.0}
    done |= {"updated_at": PLANNED + dt.timedelta(minutes=10, seconds=0.6)}
    plan = {"name": "/f", "rank": 1, "value": 1.0, "cost_bytes": 100, "size_bytes": 100, "reason": "r"}
    plan |= {"expires_at": PLANNED + dt.timedelta(days=4)}
    tables.replace_rows(PLANS, [item | plan for item in items], KEY)
    tables.replace_rows(RECEIPTS, [item | done for item in items], KEY)


def reported(tables: Tables, did: str, at: dt.timedelta) -> None:
    """A hit that the cache reports in whole seconds; the only access of its day."""
    began = PLANNED + at
    row = {"did": did, "event_id": did, "accessed_at": began, "closed_at": began, "size_bytes": 100}
    row |= {"bytes_hit": 100, "bytes_missed": 0}
    tables.replace_arrow(ACCESSES, accesses([row], scope="x", cache="xc1", source="xcache_gstream"))


def test_what_may_still_be_read_is_pending_and_a_later_day_finds_it_unread(
    tables: Tables, tmp_path: Path
) -> None:
    pushed(tables)
    reported(tables, "x:a", dt.timedelta(minutes=10))
    first = json.loads(outcomes(tmp_path, None, "--as-of", KEY[1], "--json").stdout)
    names = ("prefetched_files", *(f"prefetched_files_{use}" for use in ("read", "pending", "unread")))
    assert [first[name] for name in names] == [2, 1, 1, 0], "a read in the second of the receipt"
    sums = {"bytes_saved": 100, "bytes_spent": 200, "bytes_pending": 100, "bytes_wasted": 0}
    assert first | sums == first
    (plan,) = json.loads(outcomes(tmp_path, None, "--json").stdout)["plans"]
    assert plan | sums | {"items": 2, "read_items": 1, "pending_items": 1} == plan
    # Days later than a plan is usually accounted again; the cache reports a read of another file.
    reported(tables, "x:c", dt.timedelta(days=4, hours=1))
    assert outcomes(tmp_path, None, "--day", "2026-03-05").exit_code == 0
    (plan,) = json.loads(outcomes(tmp_path, None, "--json").stdout)["plans"]
    sums |= {"bytes_pending": 0, "bytes_wasted": 100}
    assert plan | sums | {"items": 2, "read_items": 1, "pending_items": 0} == plan
    uses = {row["did"]: row["use"] for row in tables.read_arrow(OUTCOMES).to_pylist()}
    assert uses == {"x:a": "read", "x:b": "unread"}


def test_each_queue_that_announced_a_file_is_told_what_it_saved(tables: Tables, tmp_path: Path) -> None:
    pushed(tables)
    plan = tables.read_arrow(PLANS, columns=PLANS.column_names).to_pylist()
    for item, queues in zip(plan, ("condor, panda", "panda"), strict=True):
        item["queues"] = queues
    tables.replace_rows(PLANS, plan, KEY)
    elsewhere = accesses([{"accessed_at": PLANNED}], scope="x", name="/z", cache="xc2")
    tables.replace_arrow(ACCESSES, elsewhere)
    unread = json.loads(outcomes(tmp_path, None, "--as-of", KEY[1], "--json").stdout)
    assert (unread["prefetched_files_pending"], unread["queues"][1]["files_read"]) == (2, 0)
    reported(tables, "x:a", dt.timedelta(minutes=11))
    of_queues = json.loads(outcomes(tmp_path, None, "--as-of", KEY[1], "--json").stdout)["queues"]
    condor, panda = ((of["queue"], of["files"], of["files_read"], of["bytes_saved"]) for of in of_queues)
    assert (condor, panda) == (("condor", 1, 1, 100), ("panda", 2, 1, 100))
    assert of_queues[0]["waiting_hours"] == of_queues[1]["waiting_hours"] > 0


def test_outcomes_of_an_older_cachecast_are_read_or_not(tmp_path: Path) -> None:
    old = [EARNED, EARNED | {"item_id": "2", "n_hits": 0, "bytes_wasted": 7, "bytes_spent": 7}]
    (plan,) = json.loads(outcomes(tmp_path, old, "--json").stdout)["plans"]
    assert (plan["read_items"], plan["pending_items"], plan["bytes_pending"]) == (1, 0, 0)
