"""`cachecast outcomes`: a day judged from the tables, and what plans and models earned so far."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cachecast_main import asked
from pushed_world import PushedWorld, pushed_world
from typer.testing import CliRunner

from features.common.errors import InputError, NotDueError, StaleInputError
from features.common.times import DAY_S, as_of_label, day_label
from features.results import WORTH
from features.schema import ACCESSES, CONTENTS, OUTCOMES, PLANS, RECEIPTS, arrow_schema
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
    record = world.whole
    trace, n = record.trace, record.trace.n_accesses
    assert trace.names is not None
    known = {
        "did": trace.names.take(pa.array(trace.item)),
        "accessed_at": utc(trace.time_s),
        "known_at": utc(trace.time_s),
        "size_bytes": pa.array(trace.size_bytes[trace.item]),
        "bytes_hit": pa.array(record.hit_bytes),
        "bytes_missed": pa.array(record.missed_bytes),
        "n_reads": pa.array(np.ones(n, np.int64)),
        **{name: pa.repeat(value, n) for name, value in (("scope", "cms"), ("name", "/x"), ("cache", CACHE))},
    }
    # A trace of Rucio's tells the same reads, without the cache's bytes.
    rows = []
    for source, prefix in (("xcache_gstream", "g"), ("rucio_traces", "r")):
        columns = known | {"source": pa.repeat(source, n)}
        columns["event_id"] = pa.array([f"{prefix}{i:08}" for i in range(n)])
        if source == "rucio_traces":
            columns |= {"bytes_hit": pa.nulls(n, pa.int64()), "bytes_missed": pa.nulls(n, pa.int64())}
        filled = {f.name: columns.get(f.name, pa.nulls(n, f.type)) for f in arrow_schema(ACCESSES)}
        rows.append(pa.table(filled | {"day": pa.array(day_of(trace.time_s))}))
    tables.replace_arrow(ACCESSES, pa.concat_tables(rows))


def _write_pushes(world: PushedWorld, tables: Tables) -> None:
    done, trace = world.whole.done, world.whole.trace
    n = done.item.size
    assert trace.names is not None
    dids = trace.names.take(pa.array(done.item))
    actions = pa.array([ACTIONS[code] for code in done.action.tolist()])
    half = world.first_day_s + 12 * DAY_S
    as_of = [as_of_label(int(t)) for t in done.time_s]
    ids = pa.concat_arrays(
        [item_ids(CACHE, int(t), dids[i : i + 1], actions[i : i + 1]) for i, t in enumerate(done.time_s)]
    )
    size = pa.array(trace.size_bytes[done.item])
    fetched = np.where(done.action == Action.PREFETCH.code, trace.size_bytes[done.item], 0)
    common = {"item_id": ids, "did": dids, "action": actions}
    key = {"day": pa.array(day_of(done.time_s)), "as_of": pa.array(as_of), "cache": pa.repeat(CACHE, n)}
    plan = {
        "name": pa.repeat("/x", n),
        "rank": pa.array(np.arange(n)),
        "value": pa.array(np.ones(n)),
        "cost_bytes": pa.array(fetched),
        "size_bytes": size,
        "probability": pa.array(np.ones(n)),
        "reason": pa.repeat("why", n),
        "expires_at": utc(done.time_s + 2 * DAY_S),
        "model_version": pa.array(["m/1" if t < half else "m/2" for t in done.time_s.tolist()]),
    }
    receipt = {
        "state": pa.repeat("done", n),
        "attempts": pa.array(np.ones(n, np.int64)),
        "bytes": pa.array(fetched),
        "seconds": pa.array(np.ones(n)),
        "confirmed_by": pa.repeat("cinfo", n),
        "updated_at": utc(done.time_s),
    }
    for table, columns in ((PLANS, plan), (RECEIPTS, receipt)):
        absent = {field.name: pa.nulls(n, field.type) for field in arrow_schema(table)}
        tables.replace_arrow(table, pa.table(absent | common | columns | key))
    for held in world.inventories[::12]:
        _write_inventory(world, tables, held)


def _write_inventory(world: PushedWorld, tables: Tables, held: Any) -> None:
    names, n = world.whole.trace.names, held.item.size
    assert names is not None
    columns = {
        "did": names.take(pa.array(held.item)),
        "name": pa.repeat("/x", n),
        "size_bytes": pa.array(held.bytes_on_disk),
        "bytes_on_disk": pa.array(held.bytes_on_disk),
        "complete": pa.repeat(True, n),
        "last_detach": utc(held.last_use_s),
        "open": pa.repeat(False, n),
        "scanned_at": utc(np.full(n, held.at_s)),
    }
    tables.replace_partition(CONTENTS, pa.table(columns), MomentKey.at(held.at_s, CACHE))


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
