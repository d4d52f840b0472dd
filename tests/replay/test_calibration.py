"""The calibrated scenarios, smaller: counts, sizes, shares, names, and what makes their hit ratios.

At full size they are checked by bench/calibrate.py.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from name_oracle import parse_name
from published import Line, calibration
from scenarios import values_of

from replay.workload import Workload, WorkloadConfig, generate

SCALES = {"mwt2": 0.05, "prague": 0.1, "pic": 1.0, "socal": 0.05}


def region(scenario: str, **changes: Any) -> Workload:
    return generate(WorkloadConfig.from_mapping(values_of(scenario, **changes)))


@pytest.fixture(scope="module")
def generated() -> dict[str, Workload]:
    return {name: region(name, scale=scale) for name, scale in SCALES.items()}


@pytest.fixture(scope="module")
def lines(generated: dict[str, Workload]) -> dict[str, list[Line]]:
    return {name: calibration(workload) for name, workload in generated.items()}


@pytest.mark.parametrize("scenario", SCALES)
def test_what_is_published_is_produced(lines: dict[str, list[Line]], scenario: str) -> None:
    for line in lines[scenario]:
        if line.metric in ("accesses", "files", "accesses_per_day"):
            assert abs(line.deviation_percent) < 0.1, line
        elif line.metric.endswith("bytes") or line.metric == "bytes_per_day":
            # A category of few, unequally popular files: their mean size is a matter of luck.
            assert abs(line.deviation_percent) < (10 if "lib.tgz" in line.what else 3), line
        elif line.metric in ("reread_share", "origin_share"):
            assert abs(line.produced - line.published) < 0.02, line


@pytest.mark.parametrize("scenario", SCALES)
def test_the_tables_say_what_the_report_says(
    generated: dict[str, Workload], lines: dict[str, list[Line]], scenario: str
) -> None:
    """An independent count, over the rows that are written."""
    workload = generated[scenario]
    rows = workload.accesses().select(["category", "did", "size_bytes", "origin"]).to_pandas()
    files = workload.files().select(["did", "category"]).to_pandas()
    assert rows["did"].isin(files["did"]).all()
    assert 0 < (~files["did"].isin(rows["did"].cat.categories)).mean() < 0.3
    produced = {line.what: line.produced for line in lines[scenario]}
    groups = rows.groupby("category", observed=True)
    counted = {
        **{f"{name} accesses": len(group) for name, group in groups},
        **{f"{name} files": group["did"].nunique() for name, group in groups},
        **{f"{name} mean size bytes": group["size_bytes"].mean() for name, group in groups},
        "accesses": len(rows),
        "bytes": rows["size_bytes"].sum(),
        "accesses per day": len(rows) / workload.config.days,
        "bytes per day": rows["size_bytes"].sum() / workload.config.days,
        "reread share": (rows["did"].value_counts() > 1).mean(),
    }
    for region in {o.region for o in workload.config.origins}:
        hosts = [o.name for o in workload.config.origins if o.region == region]
        counted[f"{region} origin share"] = rows.drop_duplicates("did")["origin"].isin(hosts).mean()
    replayed = {what for what in produced if "hit ratio" in what}
    assert set(produced) - replayed <= set(counted)
    for what in set(produced) & set(counted):
        assert produced[what] == pytest.approx(counted[what], rel=1e-12), what


@pytest.mark.parametrize("scenario", SCALES)
def test_names_are_understood(generated: dict[str, Workload], scenario: str) -> None:
    workload = generated[scenario]
    files = workload.files()
    some = files.take(np.random.default_rng(1).integers(0, files.num_rows, 2000)).to_pylist()
    for row in some:
        parts, dataset = parse_name(row["name"]), row["dataset"].partition(":")[2]
        assert parts.experiment == row["experiment"]
        if row["scope"] == "panda":
            assert row["name"].startswith("panda.") and row["category"] in ("panda.um", "lib.tgz")
            continue
        assert parts.tier == parse_name(dataset).tier == row["tier"]
        assert parse_name(dataset).dataset == dataset
        assert parse_name(row["did"] if row["scope"] != "cms" else row["name"]).campaign == row["campaign"]


def test_hit_ratios_come_from_passes_that_follow_each_other(lines: dict[str, list[Line]]) -> None:
    """A twentieth of MWT2 and of its cache: a little below the full size, for its datasets are as large."""
    hits = {line.what: line.produced for line in lines["mwt2"] if "hit" in line.what}
    assert hits["hit ratio at 2.749 TB"] == pytest.approx(0.40, abs=0.07)
    assert hits["byte hit ratio at 2.749 TB"] == pytest.approx(0.55, abs=0.10)
    apart = region("mwt2", scale=0.05, close_share=0.0)
    assert all(line.produced < 0.15 for line in calibration(apart) if "hit" in line.what)


def test_slices_follow_each_other_and_stay_the_same(
    generated: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replay.workload.tables.ROWS_AT_ONCE", 1 << 17)
    workload = generated["prague"]
    slices = list(workload.access_slices())
    assert [part.num_rows for part in slices] == [1 << 17, 140_000 - (1 << 17)]
    whole = workload.accesses()
    times = whole["accessed_at"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    for name in ("did", "task", "user"):
        assert whole[name].slice(1 << 17).cast(pa.string()).equals(slices[1][name].cast(pa.string()))
    assert list(workload.access_slices())[1].equals(slices[1])
