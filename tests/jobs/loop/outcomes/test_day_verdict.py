"""`cachecast outcomes`: a day judged from the tables, and what plans and models earned so far."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cachecast_main import asked
from pushed_world import PushedWorld, pushed_world
from table_rows import filled
from typer.testing import CliRunner

from features.common.errors import InputError, NotDueError, StaleInputError
from features.common.times import DAY_S, as_of_label, day_label
from features.results import WORTH
from features.schema import ACCESSES, CONTENTS, OUTCOMES, PLANS, RECEIPTS
from jobs.cli.main import app
from jobs.ground.settings.tree import Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.loop.outcomes.history import history
from jobs.loop.plan.items import item_ids
from prefetch.actions import ACTIONS, Action
from prefetch.day_verdict import judge_day
from prefetch.plan.rules import is_control

CACHE = "xc1"


@pytest.fixture(scope="module")
def world() -> PushedWorld:
    return pushed_world()


def utc(times_s: Any) -> pa.Array:
    return pa.array(np.asarray(times_s) * 1_000_000).cast(pa.timestamp("us", tz="UTC"))


def day_of(times_s: Any) -> list[str]:
    return [day_label(int(t)) for t in times_s]


@pytest.fixture(scope="module")
def site(world: PushedWorld, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, list[str]]:
    """Tables as pulls, plans and pushes would leave them, and the options of a site that has them."""
    folder = tmp_path_factory.mktemp("worth")
    tables = Tables(str(folder / "tables"))
    _write_accesses(world, tables)
    _write_pushes(world, tables)
    marks = f"[{world.config.low_watermark}, {world.config.high_watermark}]"
    (folder / "site.toml").write_text(
        f'[caches.{CACHE}]\nname = "{CACHE}"\nkind = "xcache"\nurl = "root://x:1094"\n'
        f"capacity = {world.config.capacity_bytes}\nwatermarks = {marks}\n"
    )
    return tables, ["--cache", CACHE, "--conf", str(folder / "site.toml"), "--tables", tables.root, "--json"]


def _write_accesses(world: PushedWorld, tables: Tables) -> None:
    record, trace = world.whole, world.whole.trace
    assert trace.names is not None
    times, dids = utc(trace.time_s), trace.names.take(pa.array(trace.item))
    same: dict[str, Any] = {"did": dids, "scope": "cms", "name": "/x", "cache": CACHE, "n_reads": 1}
    same |= {"accessed_at": times, "known_at": times, "day": day_of(trace.time_s)}
    same |= {"size_bytes": trace.size_bytes[trace.item]}
    # A trace of Rucio's tells the same reads, without the cache's bytes.
    of_cache: dict[str, Any] = {"bytes_hit": record.hit_bytes, "bytes_missed": record.missed_bytes}
    nothing: dict[str, Any] = {}
    rows = []
    for source, prefix, of_source in (("xcache_gstream", "g", of_cache), ("rucio_traces", "r", nothing)):
        ids = [f"{prefix}{i:08}" for i in range(trace.n_accesses)]
        columns = same | of_source | {"source": source, "event_id": ids}
        rows.append(filled(ACCESSES, trace.n_accesses, columns))
    tables.replace_arrow(ACCESSES, pa.concat_tables(rows))


def _write_pushes(world: PushedWorld, tables: Tables) -> None:
    done, trace = world.whole.done, world.whole.trace
    n = done.item.size
    assert trace.names is not None
    dids = trace.names.take(pa.array(done.item))
    actions = pa.array([ACTIONS[code] for code in done.action.tolist()])
    half = world.first_day_s + 12 * DAY_S
    ids = pa.concat_arrays(
        [item_ids(CACHE, int(t), dids[i : i + 1], actions[i : i + 1]) for i, t in enumerate(done.time_s)]
    )
    size = trace.size_bytes[done.item]
    fetched = np.where(done.action == Action.PREFETCH.code, size, 0)
    same = {"item_id": ids, "did": dids, "action": actions, "day": day_of(done.time_s), "cache": CACHE}
    same |= {"as_of": [as_of_label(int(t)) for t in done.time_s]}
    plan = {"name": "/x", "rank": np.arange(n), "value": 1.0, "cost_bytes": fetched, "size_bytes": size}
    plan |= {"probability": 1.0, "reason": "why", "expires_at": utc(done.time_s + 2 * DAY_S)}
    plan |= {"model_version": ["m/1" if t < half else "m/2" for t in done.time_s.tolist()]}
    receipt = {"state": "done", "attempts": 1, "bytes": fetched, "seconds": 1.0, "confirmed_by": "cinfo"}
    receipt |= {"updated_at": utc(done.time_s)}
    for table, columns in ((PLANS, plan), (RECEIPTS, receipt)):
        tables.replace_arrow(table, filled(table, n, same | columns))
    for held in world.inventories[::12]:
        _write_inventory(world, tables, held)


def _write_inventory(world: PushedWorld, tables: Tables, held: Any) -> None:
    names, n = world.whole.trace.names, held.item.size
    assert names is not None
    columns = {"did": names.take(pa.array(held.item)), "name": "/x", "complete": True, "open": False}
    columns |= {"size_bytes": held.bytes_on_disk, "bytes_on_disk": held.bytes_on_disk}
    columns |= {"last_detach": utc(held.last_use_s), "scanned_at": utc(np.full(n, held.at_s))}
    tables.replace_partition(CONTENTS, filled(CONTENTS, n, columns), MomentKey.at(held.at_s, CACHE))


def call(*words: str) -> Any:
    return asked("outcomes", *words)


def test_a_day_is_judged_from_the_tables_as_from_the_record(
    world: PushedWorld, site: tuple[Tables, list[str]]
) -> None:
    tables, options = site
    day_s = world.first_day_s + 20 * DAY_S
    answer = call("--day", day_label(day_s), *options)
    assert answer["withheld"] is None and answer["model_versions"] == "m/2"
    record = world.record(day_s)
    snapshots = [held for held in world.inventories[::12] if held.at_s <= record.begin.at_s]
    names = world.whole.trace.names.to_pylist()
    record = dataclasses.replace(record, begin=snapshots[-1], is_control=is_control(names, 0.05))
    expected = dataclasses.asdict(judge_day(record, world.config, day_s=day_s))
    for name in ("read_bytes", "hit_bytes", "missed_bytes", "lru_hit_bytes", "lru_wan_bytes"):
        assert answer[name] == expected[name], name
    # The order of equal times differs between tables and memory, so ties of the purge may: it decides what
    # plans leave to it.
    assert answer["replayed_hit_bytes"] == pytest.approx(expected["replayed_hit_bytes"], rel=0.02)
    (row,) = tables.read_arrow(WORTH, owner=CACHE).to_pylist()
    assert [row[name] for name in WORTH.column_names] == [answer[name] for name in WORTH.column_names]
    again = call("--day", day_label(day_s), *options)
    assert again == answer and tables.read_arrow(WORTH).num_rows == 1


def test_history_tells_plans_models_and_days_and_writes_a_page(
    world: PushedWorld, site: tuple[Tables, list[str]], tmp_path: Path
) -> None:
    tables, options = site
    for n in (10, 20, 21):
        call("--day", day_label(world.first_day_s + n * DAY_S), *options)
    out = tmp_path / "earned.html"
    earned = call("--out", str(out), *options)
    rows = tables.read_arrow(OUTCOMES).to_pylist()
    assert [row["model_version"] for row in earned["models"]] == ["m/1", "m/2"]
    for level in ("plans", "models"):
        assert sum(row["items"] for row in earned[level]) == len(rows)
        assert sum(row["bytes_saved"] for row in earned[level]) == sum(row["bytes_saved"] for row in rows)
        assert sum(row["read_items"] for row in earned[level]) == sum(row["n_hits"] > 0 for row in rows)
    assert sum(row["n_hits"] for row in earned["plans"]) > 0, "a read that a second source tells hides no hit"
    assert len(earned["plans"]) == len({row["as_of"] for row in rows})
    assert len(earned["days"]) == 3
    page = out.read_text()
    assert "against plain LRU" in page and "<svg" in page and "m/2" in page and CACHE in page


def test_a_day_without_records_of_the_cache_is_judged_later(
    site: tuple[Tables, list[str]], world: PushedWorld, tmp_path: Path
) -> None:
    """The pull that fell short has an alarm of its own."""
    tables, options = site
    other = tmp_path / "site.toml"
    other.write_text(Path(options[3]).read_text().replace(CACHE, "xc2"))
    words = ["outcomes", "--cache", "xc2", "--conf", str(other), "--tables", tables.root]
    done = CliRunner().invoke(app, [*words, "--day", day_label(world.first_day_s)])
    assert isinstance(done.exception, NotDueError) and "no record of cache 'xc2'" in str(done.exception)


def test_what_cannot_be_asked_is_one_line(site: tuple[Tables, list[str]], tmp_path: Path) -> None:
    _, options = site
    with pytest.raises(InputError, match="either --as-of or --day"):
        call("--day", "2026-01-01", "--as-of", "2026-01-01", *options)
    empty = Settings.load(Path(options[3]), env={}, tables=str(tmp_path / "none"))
    with pytest.raises(StaleInputError, match="was accounted yet"):
        history(empty, cache=CACHE, since=None, until=None)
