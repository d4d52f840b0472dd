"""Regions with habits: each ingredient shows in what is generated, and is gone without it."""

from typing import Any

import numpy as np
import pytest
from published import trace_of
from scenarios import values_of

from features.common.arrays import FloatArray, IntArray
from features.common.errors import ConfigError
from replay.workload import Workload, WorkloadConfig, generate
from replay.workload.catalogue import Rhythm

SMALL = {"scale": 0.3}


def region(scenario: str = "site", **changes: Any) -> Workload:
    return generate(WorkloadConfig.from_mapping(values_of(scenario, **(SMALL | changes))))


@pytest.fixture(scope="module")
def site() -> Workload:
    return region()


def reads_of_files(workload: Workload) -> IntArray:
    reads: IntArray = np.bincount(trace_of(workload).item, minlength=workload.n_files)
    return reads


@pytest.mark.parametrize("scenario", ["site", "archive"])
def test_a_seed_decides_every_byte_and_the_tables_are_those_of_other_regions(scenario: str) -> None:
    first, again, other = (region(scenario, seed=seed, scale=0.1) for seed in (5, 5, 6))
    assert first.accesses(raw=True).equals(again.accesses(raw=True)) and first.files().equals(again.files())
    assert not first.accesses().equals(other.accesses())
    demo = region("demo", days=2)
    for name in ("accesses", "files"):
        assert getattr(first, name)().schema.equals(getattr(demo, name)().schema)


def test_accesses_and_files_are_those_asked_for(site: Workload) -> None:
    """Accesses up to the last sessions; files are expected, not exact."""
    reads, category = (
        reads_of_files(site),
        np.repeat(site.catalogue.datasets.category, site.catalogue.datasets.n_files),
    )
    for index, kind in enumerate(site.config.categories):
        mine = reads[category == index]
        assert mine.sum() == pytest.approx(kind.accesses * site.config.growth, rel=0.1), kind.name
        assert (mine > 0).sum() == pytest.approx(kind.files * site.config.growth, rel=0.25), kind.name


def test_days_do_not_wrap_and_nothing_is_read_before_it_is_complete(site: Workload) -> None:
    rows = site.accesses().select(["accessed_at", "did"]).to_pandas()
    created = site.files().select(["did", "created_at"]).to_pandas().set_index("did")["created_at"]
    assert (rows["accessed_at"] >= rows["did"].astype(str).map(created)).all()
    by_day = np.bincount((trace_of(site).time_s - site.config.start_s) // 86400)
    assert by_day.size == site.config.days and by_day.min() > 0.2 * by_day.mean()
    # Spells that began before the start go on in the first days, which are not emptier than the others.
    assert by_day[:7].mean() > 0.6 * by_day.mean()


def spells(workload: Workload) -> tuple[IntArray, FloatArray]:
    """The dataset of each spell, and the day on which it begins."""
    tasks = workload.tasks
    _, first = np.unique(np.stack([tasks.session, tasks.dataset]), axis=1, return_index=True)
    return tasks.dataset[first].astype(np.int64), Rhythm(workload.config).day(tasks.start[first])


def test_a_new_version_takes_over(site: Workload) -> None:
    """Spells over the old one that have begun go on; none begins."""
    datasets = site.catalogue.datasets
    dataset, begun = spells(site)
    assert (begun <= datasets.dies_day[dataset] + 1e-6).all()
    renewed = np.isfinite(datasets.dies_day) & (datasets.dies_day < site.config.days / 2)
    assert (
        np.isin(datasets.line[renewed], datasets.line[dataset[datasets.version[dataset] == 2]]).mean() > 0.2
    )
    assert not (region(new_version_share=0.0).catalogue.datasets.version > 1).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_groups": 1000}, "n_groups: 1000 groups have more members"),
        ({"session_share": 1.0}, "session_share: 1.0 should be less than 1"),
        ({"close_share": 1.0}, "close_share: 1 ends no spell"),
        ({"close_hours": 0.0}, "close_hours: 0 is no median"),
        ({"warm_days": 0}, "warm_days: 0 should be greater than 0"),
    ],
    ids=str,
)
def test_a_wrong_habit_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WorkloadConfig.from_mapping(values_of("site", **change))


def test_a_region_so_small_that_nothing_is_read_in_its_days_is_an_error() -> None:
    with pytest.raises(ConfigError, match="scale: 1e-06: no read falls into the days"):
        region(scale=1e-6, days=1, seed=1, once_share=1.0)
