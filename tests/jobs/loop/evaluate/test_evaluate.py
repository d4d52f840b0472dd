"""`cachecast evaluate` on a small generated region: what it checks first and may know, and its record."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cachecast_main import asked
from local_engines import LOCAL
from score_rows import by_item
from typer.testing import CliRunner

from features.common.errors import InputError, SchemaError
from features.common.times import DAY_S
from features.common.units import TOO_FEW_DAYS, format_bytes
from features.results import CHALLENGER_PLAN
from features.schema import ACCESSES, FILES
from jobs.cli.main import app
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.evaluate.answer import acting_rows
from jobs.loop.evaluate.replay_setup import copy_file, copy_tables
from jobs.loop.evaluate.score_store import ScoreStore
from jobs.loop.evaluate.walk_forward import SCORERS, score, weeks
from jobs.loop.train.engines import RegionData
from jobs.studies.simulate.workload import load
from jobs.studies.simulate.workload import write as generate

START_S = 1_772_323_200  # 2026-03-01
FROM_S = START_S + 8 * DAY_S
CONF = """
[features]
cycle = "6h"
horizons = ["6h", "1d", "2d"]
candidates = "2d"
active_datasets = "12h"
unread_per_dataset = 5
[training]
every = "6h"
span = "6d"
trees = 8
max_rows = 4000
[plan]
horizon = "1d"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "site.toml").write_text(CONF)
    generate(load("demo", seed=5, days=12, accesses=2500), out=folder)
    return folder


@pytest.fixture(scope="module")
def conf(site: Path) -> Settings:
    return Settings.load(site / "site.toml", tables=str(site / "tables"), env={})


@pytest.fixture(scope="module")
def answer(site: Path) -> dict[str, Any]:
    """What the command tells as JSON; it takes the session that runs already."""
    words = ["--from", "2026-03-09", "--cycle", "6h", "--capacity-fraction", "0.1,0.2"]
    files = {"accesses": "accesses.parquet", "conf": "site.toml", "out": "walk.html"}
    words += [word for option, name in files.items() for word in (f"--{option}", str(site / name))]
    answer: dict[str, Any] = asked("evaluate", *words)
    return answer


def test_every_rival_is_there_at_every_capacity_and_none_beats_the_bound(answer: dict[str, Any]) -> None:
    rows = {(row["policy"], row["capacity_fraction"]): row for row in answer["rows"]}
    policies = {*SCORERS, "lru", "steward", "steward+plan", "s3fifo", "clairvoyant", "bound"}
    assert set(rows) == {(policy, share) for policy in policies for share in (0.1, 0.2)}
    assert (answer["first_day"], answer["last_day"]) == ("2026-03-09", "2026-03-12")
    assert answer["model_version"] is None
    for share in (0.1, 0.2):
        lru, bound = rows["lru", share]["wan_bytes"], rows["bound", share]["wan_bytes"]
        assert bound < lru
        for policy in policies:
            row = rows[policy, share]
            assert bound <= row["wan_bytes"]
            assert row["byte_gap_closed"] == pytest.approx((lru - row["wan_bytes"]) / (lru - bound))
            assert row["byte_gap_closed_lower"] is row["byte_gap_closed_upper"] is None
            assert row["cycle"] == ("6h" if policy in {*SCORERS, "steward+plan"} else None)
            assert (row["core_hours"] is None) == (policy == "bound")
        pair, alone = rows["steward+plan", share], rows["steward", share]
        assert pair["wan_bytes"] != alone["wan_bytes"]
        # With one distance for all origins, hours are spent as bytes are missed.
        saved_bytes = pair["byte_hit_ratio"] - alone["byte_hit_ratio"]
        assert (pair["core_hours"] < alone["core_hours"]) == (saved_bytes > 0)
        for row in (pair, alone):  # and jobs wait as long as bytes are missed
            missed = [1 - of["byte_hit_ratio"] for of in (row, rows["lru", share])]
            waiting = [of["waiting_hours"] for of in (row, rows["lru", share])]
            assert waiting[0] / waiting[1] == pytest.approx(missed[0] / missed[1])


def test_lists_a_steward_or_both_are_side_by_side(answer: dict[str, Any], site: Path) -> None:
    acting = acting_rows(answer["rows"], "capacity_fraction")
    assert [(row["capacity_fraction"], row["acting"]) for row in acting] == [
        (share, name) for share in (0.1, 0.2) for name in ("LRU", "lists", "a steward", "both", "S3-FIFO")
    ]
    lru = acting[0]
    for row in acting[:5]:
        assert row["wan_share"] == row["wan_bytes"] / lru["wan_bytes"]
        assert row["waiting_share"] == row["waiting_hours"] / lru["waiting_hours"]
    assert "Lists, a steward, or both" in (site / "walk.html").read_text()
    no_plans = [row for row in answer["rows"] if "+" not in row["policy"]]
    assert acting_rows(no_plans, "capacity_fraction") == []


def test_the_page_says_what_the_answer_says(answer: dict[str, Any], site: Path) -> None:
    page = (site / "walk.html").read_text().replace("\u00a0", " ")
    for row in answer["rows"]:
        assert format_bytes(row["wan_bytes"]) in page
        if row["policy"] == "lru+challenger":
            assert f"At {100 * row['capacity_fraction']:.1f} % of the bytes read" in page
            assert f"{100 * row['byte_gap_closed']:.0f} % of the gap ({TOO_FEW_DAYS})" in page
    assert any("4 count, bounds need 14" in note and note in page for note in answer["notes"])
    assert page.replace("&#39;", "'").count("of the bytes read, a steward ") == 2


def scored(conf: Settings, accesses: Path, folder: Path) -> ScoreStore:
    """The scores of a walk of one day over `accesses`."""
    tables = Tables(str(folder / "tables"))
    copy_file(accesses, tables)
    dids = pc.unique(tables.read_arrow(FILES, columns=["did"])["did"]).sort()
    store = ScoreStore(folder, dids, conf.features.spec)
    data = RegionData(LOCAL, tables, conf.features.spec, "r")
    walked = weeks(
        first_s=START_S,
        from_s=FROM_S,
        until_s=FROM_S + DAY_S,
        cycles_s=[6 * 3600],
        every_s=conf.training.every,
        span_s=conf.training.span,
    )
    more: dict[str, Any] = {"champion": None, "on_progress": lambda *_: None}
    score(data, conf.training, walked, store, candidates=len(dids), **more)
    return store


def rewritten(site: Path, folder: Path, moment_s: int) -> Path:
    """The accesses with all that is known from `moment_s` on replaced: other files, and a tell-tale of each.

    The tell-tale is a read long ago of what is read next, by a user of its own, published at `moment_s`.
    """
    rows = pq.read_table(site / "accesses.parquet").drop_columns(["category"])
    rows = rows.append_column("known_at", rows["closed_at"])
    instant = pa.scalar(moment_s * 1_000_000, pa.timestamp("us", tz="UTC"))
    past = rows.filter(pc.less(rows["known_at"], instant))
    later = rows.filter(pc.greater_equal(rows["known_at"], instant))
    other = later.take(np.random.default_rng(1).permutation(later.num_rows))
    swapped = later.set_column(later.column_names.index("did"), "did", other["did"])
    swapped = swapped.set_column(later.column_names.index("size_bytes"), "size_bytes", other["size_bytes"])
    early = pa.repeat(pa.scalar((FROM_S - DAY_S) * 1_000_000, instant.type), later.num_rows)
    instants, users = pa.repeat(instant, later.num_rows), pa.repeat("oracle", later.num_rows)
    planted = later
    for name, values in (("accessed_at", early), ("known_at", instants), ("user", users)):
        planted = planted.set_column(planted.column_names.index(name), name, values)
    plain = [table.cast(_plain(table.schema)) for table in (past, swapped, planted)]
    folder.mkdir()
    pq.write_table(pa.concat_tables(plain), folder / "accesses.parquet")
    (folder / "files.parquet").write_bytes((site / "files.parquet").read_bytes())
    return folder / "accesses.parquet"


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    )


def test_what_becomes_known_later_changes_no_score_and_a_planted_signal_gains_nothing(
    site: Path, conf: Settings, tmp_path: Path
) -> None:
    moment_s = FROM_S + 12 * 3600
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plain = scored(conf, site / "accesses.parquet", tmp_path / "a")
    planted = scored(conf, rewritten(site, tmp_path / "in", moment_s), tmp_path / "b")
    for scorer in SCORERS:
        for at in range(FROM_S, moment_s + 1, 6 * 3600):
            as_was, as_is = by_item(plain, scorer, at), by_item(planted, scorer, at)
            assert as_was.shape[1] > 10
            np.testing.assert_array_equal(as_was, as_is)
    last = FROM_S + 18 * 3600
    later = by_item(plain, CHALLENGER_PLAN, last), by_item(planted, CHALLENGER_PLAN, last)
    assert not np.array_equal(*later)


def test_weeks_learn_from_what_lies_before_them_and_plan_what_follows() -> None:
    walked = weeks(
        first_s=START_S, from_s=FROM_S, until_s=FROM_S + 10 * DAY_S, cycles_s=[3600, DAY_S], every_s=5 * 3600,
        span_s=3 * DAY_S,
    )  # fmt: skip
    assert [week.trained_s for week in walked] == [FROM_S, FROM_S + 7 * DAY_S]
    for week in walked:
        assert week.trained_s - 3 * DAY_S <= week.learned_s[0]
        assert week.learned_s[-1] < week.trained_s == week.boundaries_s[0]
    assert sum(len(week.boundaries_s) for week in walked) == 240
    assert {at % (5 * 3600) for week in walked for at in week.learned_s} == {FROM_S % (5 * 3600)}


def test_a_file_becomes_our_tables_with_what_it_lacks(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, in_slices = Tables(str(tmp_path)), Tables(str(tmp_path / "slices"))
    copy_file(site / "accesses.parquet", tables)
    rows, raw = tables.read_arrow(ACCESSES), pq.read_table(site / "accesses.parquet")
    assert rows.num_rows == raw.num_rows == len(set(rows["event_id"].to_pylist()))
    assert pc.all(pc.equal(rows["known_at"], rows["closed_at"])).as_py()
    monkeypatch.setattr("jobs.loop.evaluate.replay_setup.ROWS_AT_ONCE", rows.num_rows // 3)
    copy_file(site / "accesses.parquet", in_slices)
    n_files = [len(part.files) for part in in_slices.head(ACCESSES).partitions.values()]
    assert len(n_files) < sum(n_files) <= len(n_files) + 3, "rows of a day lie together"
    assert in_slices.read_arrow(ACCESSES).sort_by("event_id").equals(rows.sort_by("event_id"))
    files = tables.read_arrow(FILES)
    assert files.num_rows == pq.read_metadata(site / "files.parquet").num_rows
    assert files["origins"][0].as_py()
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(InputError, match="as Parquet"):
        copy_file(tmp_path / "x.parquet", tables)
    pq.write_table(raw.drop_columns(["did"]), tmp_path / "y.parquet")
    with pytest.raises(SchemaError, match="no column 'did'"):
        copy_file(tmp_path / "y.parquet", tables)
    for odd in (pa.repeat("then", raw.num_rows), pa.repeat(True, raw.num_rows), pa.repeat([1], raw.num_rows)):
        place = raw.column_names.index("accessed_at")
        pq.write_table(raw.set_column(place, "accessed_at", odd), tmp_path / "z.parquet")
        with pytest.raises(SchemaError, match="'accessed_at' is no timestamp"):
            copy_file(tmp_path / "z.parquet", tables)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--from", "2026-03-09", "--cycle", "5h"], "does not fit the grid"),
        (["--from", "2026-03-09", "--cycle", "0h"], "does not fit the grid"),
        (["--from", "2026-03-09", "--capacity-fraction", "3"], "not shares"),
    ],
)
def test_mistakes_are_told(site: Path, words: list[str], error: str) -> None:
    common = ["--accesses", str(site / "accesses.parquet"), "--conf", str(site / "site.toml")]
    failed = CliRunner().invoke(app, ["evaluate", *common, *words])
    assert failed.exit_code != 0
    assert re.search(error, str(failed.exception))


def test_the_sites_days_are_copied_with_the_catalogue(site: Path, tmp_path: Path) -> None:
    own, copy = Tables(str(tmp_path / "own")), Tables(str(tmp_path / "copy"))
    copy_file(site / "accesses.parquet", own)
    copy_tables(own, copy, since_s=START_S + DAY_S, until_s=START_S + 3 * DAY_S)
    days = own.read_arrow(ACCESSES, since="2026-03-02", until="2026-03-04")
    assert copy.read_arrow(ACCESSES).sort_by("event_id").equals(days.sort_by("event_id"))
    assert copy.read_arrow(FILES).sort_by("did").equals(own.read_arrow(FILES).sort_by("did"))
