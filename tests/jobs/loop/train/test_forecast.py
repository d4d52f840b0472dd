"""The forecast of a plain series: its form, its honesty about time, and short pasts."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.common.errors import InputError, SchemaError
from jobs.loop.train.forecast import judge, run
from models.evaluation.metrics import ranking_quality
from models.series.series import read_series

COLUMNS = ["dataset", "horizon", "probability", "expected_accesses"]


def weekly(n_datasets: int = 60, n_weeks: int = 34, seed: int = 4) -> pd.DataFrame:
    """Datasets read every k-th week, some irregularly; each has its own k and level."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n_datasets):
        every, level = int(rng.integers(1, 9)), int(rng.integers(5, 500))
        for week in range(int(rng.integers(1, 12)), n_weeks + 1, every):
            if rng.random() < 0.9:
                rows.append((f"/LHCb/Collision11/B/R/{i:03d}/D{i % 3}.DST", week, level))
    return pd.DataFrame(rows, columns=["dataset", "week", "accesses"])


def forecast(
    folder: Path, rows: pd.DataFrame, as_of: str, horizons: list[int]
) -> tuple[pd.DataFrame, bytes, dict[str, str]]:
    series, out = folder / "series.csv", folder / "out" / "forecast.csv"
    rows.to_csv(series, index=False)
    summary = run(series=series, as_of=as_of, horizons=horizons, out=out)
    table = pd.read_csv(out)
    assert summary.rows == len(table)
    return table, out.read_bytes(), summary.models


def check_form(table: pd.DataFrame, names: list[str], horizons: list[int]) -> None:
    assert list(table.columns) == COLUMNS
    assert table["dataset"].tolist() == [name for name in sorted(names) for _ in horizons]
    assert table["horizon"].tolist() == horizons * len(names)
    assert table["probability"].between(0, 1).all()
    assert (table["expected_accesses"] >= table["probability"] - 1e-6).all()
    for name in ("probability", "expected_accesses"):
        assert (table.groupby("dataset")[name].diff().fillna(0) >= 0).all()


def test_every_known_dataset_is_forecast_better_than_by_chance(tmp_path: Path) -> None:
    rows = weekly()
    table, _, models = forecast(tmp_path, rows, "28", [4, 1, 4])
    known = rows[rows["week"] <= 28]["dataset"].unique().tolist()
    check_form(table, known, [1, 4])
    assert set(models) == {"1", "4"}
    assert all("lightgbm" in made_by for made_by in models.values())
    soon = table[table["horizon"] == 1].set_index("dataset")["probability"]
    read = soon.index.isin(rows[rows["week"] == 29]["dataset"])
    assert ranking_quality(read, soon).auc > 0.8


def test_nothing_after_as_of_matters(tmp_path: Path) -> None:
    rows = weekly()
    past, later = rows[rows["week"] <= 24], rows[rows["week"] > 24]
    _, cut, _ = forecast(tmp_path, past, "24", [1, 6])
    changed = later.assign(accesses=999_999, dataset="/LHCb/A/New/D0.DST")
    wild = pd.DataFrame({"dataset": [""], "week": [25], "accesses": ["not a number"]})
    mixed = pd.concat([wild, later, past.sample(frac=1, random_state=1), changed])
    _, whole, _ = forecast(tmp_path, mixed, "24", [1, 6])
    assert cut == whole


def test_a_time_long_after_the_last_record_is_told(tmp_path: Path) -> None:
    series = tmp_path / "series.csv"
    weekly().to_csv(series, index=False)

    def alarms_of(as_of: str) -> tuple[str, ...]:
        return run(series=series, as_of=as_of, horizons=[1], out=tmp_path / "out.csv").alarms

    assert alarms_of("34") == ()
    (alarm,) = alarms_of("86")
    assert "no read in the 52 weeks up to --as-of" in alarm
    series.write_text("dataset,week,accesses\na,2400,0\nb,2401,0\n")
    (alarm,) = alarms_of("2401")
    assert "no read in the 2 weeks up to --as-of" in alarm


def test_a_daily_series_counts_days_and_keeps_unread_datasets(tmp_path: Path) -> None:
    rows = weekly(30, 20)
    dates = (pd.Timestamp("2015-08-13") + pd.to_timedelta(rows["week"], unit="D")).dt.strftime("%Y-%m-%d")
    daily = pd.DataFrame({"date": dates, "dataset": rows["dataset"], "n_accesses": rows["accesses"]})
    never = pd.DataFrame({"date": ["2015-08-20"], "dataset": ["/A/B-v1/RAW"], "n_accesses": [0]})
    daily = pd.concat([daily, never]).assign(n_cpus=1)
    first = pd.Timestamp(daily["date"].min())
    until = pd.Timestamp("2015-08-30")
    table, by_date, _ = forecast(tmp_path, daily, "2015-08-30", [1, 2])
    check_form(table, sorted(daily[daily["date"] <= "2015-08-30"]["dataset"].unique()), [1, 2])
    assert "/A/B-v1/RAW" in set(table["dataset"])
    _, by_number, _ = forecast(tmp_path, daily, str((until - first).days + 1), [1, 2])
    assert by_date == by_number


def test_short_pasts_fall_back_and_say_so(tmp_path: Path) -> None:
    rows = weekly(40, 12)
    table, _, models = forecast(tmp_path, rows, "12", [1, 20])
    check_form(table, sorted(rows["dataset"].unique()), [1, 20])
    assert models["20"].startswith("extended from 1")
    one_week = pd.DataFrame({"dataset": ["b", "a,c"], "week": [3, 3], "accesses": [7, 0]})
    table, _, models = forecast(tmp_path, one_week, "5", [1, 2])
    check_form(table, ["a,c", "b"], [1, 2])
    assert models["1"].startswith("rate")
    assert models["2"].startswith("extended from 1")


def test_a_judged_cut_is_the_forecast_made_then_against_what_followed(tmp_path: Path) -> None:
    rows = weekly()
    table, _, _ = forecast(tmp_path, rows, "24", [4])
    out = tmp_path / "judged.csv"
    means = judge(series=tmp_path / "series.csv", as_of="34", horizons=[4, 1], cuts=[24, 28, 33], out=out)
    judged = pd.read_csv(out)
    assert [(mean.horizon, mean.cuts) for mean in means] == [(1, 3), (4, 2)]
    assert judged[["cut", "horizon"]].to_numpy().tolist() == [[24, 1], [24, 4], [28, 1], [28, 4], [33, 1]]
    followed = rows[rows["week"].between(25, 28)]
    read = table["dataset"].isin(followed["dataset"])
    then = judged[(judged["cut"] == 24) & (judged["horizon"] == 4)].iloc[0]
    assert then["auc"] == pytest.approx(ranking_quality(read, table["probability"]).auc, abs=1e-3)
    last = rows[rows["week"] <= 24].groupby("dataset")["week"].max()
    recency = ranking_quality(read, table["dataset"].map(last)).average_precision
    assert then["recency_average_precision"] == pytest.approx(recency, abs=1e-6)
    total = followed[followed["dataset"].isin(table["dataset"])]["accesses"].sum()
    assert then["count_error"] == pytest.approx(
        abs(table["expected_accesses"].sum() - total) / total, abs=1e-5
    )
    of_four = judged[judged["horizon"] == 4]
    assert means[1].auc == pytest.approx(of_four["auc"].mean(), abs=1e-6)
    reads = table["dataset"].map(followed.groupby("dataset")["accesses"].sum()).fillna(0)
    off = (table["expected_accesses"] - reads).abs().sum()
    assert then["absolute_error"] == pytest.approx(off / total, abs=1e-5)
    pooled = (of_four["absolute_error"] * of_four["reads"]).sum() / of_four["reads"].sum()
    assert means[1].absolute_error == pytest.approx(pooled, abs=1e-5)


def test_reads_within_counts_only_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "s.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("dataset,week,accesses\nb,3,5\na,1,2\nb,3,1\na,4,9\na,6,100\nc,2,0\n")
    series = read_series(path, "5")
    assert (series.names, series.born.tolist(), series.now) == (["a", "b", "c"], [1, 3, 2], 5)
    code, unit = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 2, 3, 1])
    assert series.reads_within(code, unit, 3).tolist() == [2, 9, 9, 6, 0, 0]


WEEKS = {"dataset": ["b", "a", "b", "c"], "week": [3, 1, 3, 2], "accesses": [5, 2, 1, 0]}
FORMS = {
    "mark": "\ufeffdataset,week,accesses\nb,3,5\na,1,2\nb,3,1\nc,2,0\n",
    "pandas": ",dataset,week,accesses\n0,b,3.0,5.0\n1,a,1.0,2.0\n2,b,3.0,1.0\n3,c,2.0,0.0\n",
    "texts": 'dataset,week,accesses\nb,"3.0",5\na,1,2.0\nb,3, 1\nc,2e0,0\n',
    "later": "dataset,week,accesses\nb,3,5\na,1,2\nb,3,1\nc,2,0\na,6,x\n",
    "decimals": pa.table(WEEKS).cast(
        pa.schema({"dataset": pa.binary(), "week": pa.decimal128(38, 0), "accesses": pa.float64()})
    ),
    "nested": pa.table(WEEKS | {"more": [[1], [2], [3], [4]]}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_series_is_read_in_every_form(tmp_path: Path, form: str | pa.Table) -> None:
    path = tmp_path / "s"
    if isinstance(form, str):
        path.write_text(form)
    else:
        pq.write_table(form, path)
    series = read_series(path, "5")
    assert (series.names, series.born.tolist()) == (["a", "b", "c"], [1, 3, 2])
    assert (series.unit.tolist(), series.reads.tolist(), series.n_twice) == ([1, 3], [2, 6], 0)


DAYS = [pa.array([20513, 20514], pa.date32()), pa.array([20513 * 86400, 20514 * 86400], pa.timestamp("s"))]


@pytest.mark.parametrize(
    "days", [*DAYS, pa.array(["2026-03-01", "2026-03-02"])], ids=lambda column: str(column.type)
)
def test_days_of_every_type(tmp_path: Path, days: pa.Array) -> None:
    pq.write_table(pa.table({"date": days, "dataset": ["a", "a"], "n_accesses": [1, 2]}), tmp_path / "s")
    assert read_series(tmp_path / "s", "2026-03-02").unit.tolist() == [20513, 20514]


def test_equal_rows_count_once_and_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("dataset,week,accesses\na,1,10\na,1,7\na,1,10.0\na,2,1\n")
    series = read_series(path, "2")
    assert (series.reads.tolist(), series.n_twice) == ([17, 1], 1)
    lines = run(series=path, as_of="2", horizons=[1], out=tmp_path / "o.csv").alarms
    assert [words for words in lines if words.startswith("1 rows up to --as-of are equal to another one")]
    path.write_text("dataset,week,accesses,site\na,1,10,T1\na,1,10,T2\n")
    assert read_series(path, "1").reads.tolist() == [20]


@pytest.mark.parametrize(
    ("text", "as_of", "error", "words"),
    [
        ("a,b\n1,2\n", "5", SchemaError, "dataset,week,accesses"),
        ("dataset,week,accesses\n", "5", InputError, "no records"),
        ("dataset,week,accesses,n,n\na,1,1,2,3\n", "5", SchemaError, "several columns 'n'"),
        ("dataset,week,accesses\na,9,1\n", "5", InputError, "no record up to 5"),
        ("dataset,week,accesses\na,x,1\n", "5", InputError, "row 1 has week 'x'"),
        ("dataset,week,accesses\na,1,1\na,2,-4\n", "5", InputError, "row 2 has accesses -4"),
        ("dataset,week,accesses\n,1,1\n", "5", InputError, "no dataset"),
        ("dataset,week,accesses\nNone,1,1\n", "5", InputError, "no dataset"),
        ("dataset,week,accesses\na,1.5,1\n", "5", InputError, "row 1 has week 1.5, no whole number"),
        ("dataset,week,accesses\na,1,1\na,2,\n", "5", InputError, "row 2 has accesses None, not a number"),
        ("dataset,week,accesses\na,1,1\n", "2015-09-01", InputError, "a week's number"),
        ("date,dataset,n_accesses\n2015-02-30,a,1\n", "2015-09-01", InputError, "2015-02-30"),
        ("date,dataset,n_accesses\n2015-02-20,a,1\n", "soon", InputError, "need a date"),
        ("", "5", InputError, "is empty"),
    ],
)
def test_unusable_input_is_named(
    tmp_path: Path, text: str, as_of: str, error: type[InputError], words: str
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(text)
    with pytest.raises(error, match=words):
        read_series(path, as_of)
