"""Regions with habits: each ingredient shows in what is generated, and is gone without it."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import trace_of

from features.common.arrays import FloatArray, IntArray
from features.common.errors import ConfigError
from replay.workload import Workload, WorkloadConfig, generate
from replay.workload.catalogue import ONCE, REREAD, Rhythm

FOLDER = Path(__file__).parents[2] / "conf" / "workloads"
SMALL = {"scale": 0.3}


def values_of(scenario: str = "site", **changes: Any) -> dict[str, Any]:
    """The values of a scenario; `changes` of habits or of all categories, or else of the scenario."""
    values = tomllib.loads((FOLDER / f"{scenario}.toml").read_text(encoding="utf-8")) | SMALL
    for key, value in changes.items():
        if key in values.get("habits", {}):
            values["habits"][key] = value
        elif key in values["category"]:
            values["category"][key] = value
            values["categories"] = [
                row | ({key: value} if key in row else {}) for row in values["categories"]
            ]
        else:
            values[key] = value
    return values


def region(scenario: str = "site", **changes: Any) -> Workload:
    return generate(WorkloadConfig.from_mapping(values_of(scenario, **changes)))


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
    demo = generate(WorkloadConfig.from_mapping(values_of("demo", days=2)))
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


def test_without_days_before_the_start_the_first_days_are_empty() -> None:
    cold = region(warm_days=1)
    by_day = np.bincount((trace_of(cold).time_s - cold.config.start_s) // 86400, minlength=cold.config.days)
    assert by_day[:2].mean() < by_day[20:40].mean()


def test_production_reads_once(site: Workload) -> None:
    datasets = site.catalogue.datasets
    reads, role = reads_of_files(site), np.repeat(datasets.role, datasets.n_files)
    assert reads[role == ONCE].max() == 1 and (role == ONCE).sum() > 1000
    values = values_of()
    for row in values["categories"]:
        row["once_share"] = 0.0 if row["name"] == "MINIAOD" else row.get("once_share", 0.0)
    without = generate(WorkloadConfig.from_mapping(values))
    assert read_once(without, "MINIAOD") < 0.5 * read_once(site, "MINIAOD")
    production = np.unique(site.tasks.dataset[site.tasks.production])
    assert (datasets.role[production] == ONCE).all()


def test_without_decay_sessions_begin_at_any_time() -> None:
    values = values_of(new_version_share=0.0, session_share=0.0, fresh_share=0.0)
    del values["category"]["decay_days"]
    _, begun = spells(generate(WorkloadConfig.from_mapping(values)))
    inside = begun[(begun >= 0) & (begun < 56)]
    weeks = np.bincount((inside // 7).astype(np.int64))
    assert weeks.min() > 0.7 * weeks.max()


def read_once(workload: Workload, name: str) -> float:
    """The share of the category's files read that are read once."""
    of_file = np.repeat(workload.catalogue.datasets.category, workload.catalogue.datasets.n_files)
    mine = [of_config.name for of_config in workload.config.categories].index(name) == of_file
    reads = reads_of_files(workload)[mine]
    return float((reads == 1).sum() / (reads > 0).sum())


def test_interest_fades_after_birth() -> None:
    fading = region(decay_days=4.0, steady_share=0.0, session_share=0.0)
    assert mean_age(fading) < 0.4 * mean_age(region(steady_share=1.0, session_share=0.0))


def mean_age(workload: Workload) -> float:
    """Days from the birth of datasets, in the first third of the days, to the beginnings of their spells."""
    datasets, tasks = workload.catalogue.datasets, workload.tasks
    dataset, begun = spells(workload)
    born = datasets.born_day[dataset]
    some = (born > 0) & (born < workload.config.days / 3) & (datasets.role[dataset] == REREAD)
    assert tasks.start.size >= some.sum() > 20
    return float((begun - born)[some].mean())


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


@pytest.mark.parametrize("key", ["group_sigma", "campaign_sigma"])
def test_groups_and_campaigns_have_an_appeal(key: str) -> None:
    assert spread(key, 1.5) > 1.5 * spread(key, 0.0)


def spread(key: str, sigma: float) -> float:
    """The relative spread of passes per dataset between groups or campaigns."""
    many: dict[str, Any] = {"n_groups": 8, "n_campaigns": 8, "group_sigma": 0.0, "campaign_sigma": 0.0}
    workload = region(**(many | {key: sigma}))
    datasets = workload.catalogue.datasets
    number = getattr(datasets, key.removesuffix("_sigma"))
    some = datasets.role == REREAD
    passes = np.bincount(workload.tasks.dataset, minlength=number.size)
    means = np.bincount(number[some], passes[some]) / np.bincount(number[some])
    return float(means.std() / means.mean())


def test_users_read_their_groups_datasets_some_of_them_often(site: Workload) -> None:
    datasets, tasks = site.catalogue.datasets, site.tasks
    some = ~tasks.production
    assert site.config.habits is not None
    group = tasks.user[some] * site.config.habits.n_groups // site.config.n_users
    assert (group == datasets.group[tasks.dataset[some]]).mean() > 0.95
    assert busiest(site) > 1.5 * busiest(region(user_sigma=0.0))


def busiest(workload: Workload) -> float:
    """The share of the sessions that the busiest tenth of the users have."""
    some = ~workload.tasks.production
    _, first = np.unique(workload.tasks.session[some], return_index=True)
    count = np.sort(np.bincount(workload.tasks.user[some][first], minlength=workload.config.n_users))
    return float(count[-workload.config.n_users // 10 :].sum() / count.sum())


def test_sessions_move_on_within_a_group(site: Workload) -> None:
    datasets, tasks = site.catalogue.datasets, site.tasks
    pairs = np.unique(np.stack([tasks.session, tasks.dataset])[:, ~tasks.production], axis=1)
    per_session = np.bincount(np.unique(pairs[0], return_inverse=True)[1])
    assert 1.3 < per_session.mean() < 2.1 and per_session.max() > 4
    for column in (datasets.group, datasets.campaign, datasets.category):
        lowest, highest = (np.full(pairs[0].max() + 1, value) for value in (10**9, -1))
        np.minimum.at(lowest, pairs[0], column[pairs[1]])
        np.maximum.at(highest, pairs[0], column[pairs[1]])
        assert (lowest >= highest).sum() >= np.unique(pairs[0]).size
    alone = region(session_share=0.0).tasks
    pairs = np.unique(np.stack([alone.session, alone.dataset]), axis=1)
    assert np.unique(pairs[0]).size == pairs.shape[1]


def test_spells_repeat_at_gaps_that_differ_by_dataset(site: Workload) -> None:
    differing, alike = gaps_between(site), gaps_between(region(closeness_sigma=0.0))
    assert differing > 0.5 and alike < 0.5 * differing


def gaps_between(workload: Workload) -> float:
    """The spread of the datasets' mean logarithms of gaps within spells, beyond chance."""
    tasks = workload.tasks
    order = np.lexsort((tasks.start, tasks.dataset, tasks.session))
    same = (np.diff(tasks.session[order]) == 0) & (np.diff(tasks.dataset[order]) == 0)
    gap, dataset = np.log(np.diff(tasks.start[order])[same] + 1e-9), tasks.dataset[order][1:][same]
    categories = workload.catalogue.datasets.category[dataset]
    some = categories == 2
    count = np.bincount(dataset[some])
    mean = np.bincount(dataset[some], gap[some])[count > 5] / count[count > 5]
    inside = workload.config.categories[2].gap_sigma ** 2 / count[count > 5]
    assert workload.config.habits is not None
    pace = workload.config.habits.pace_sigma**2
    return float(np.sqrt(max(0.0, mean.var() - inside.mean() - pace / 2)))


def test_the_first_files_of_a_dataset_are_the_hot_ones(site: Workload) -> None:
    assert front_over_rear(site) > 1.15
    assert front_over_rear(region(partial_share=0.0)) < 1.1


def front_over_rear(workload: Workload) -> float:
    """How much more often the first tenth of the files is read than the last half, in large datasets."""
    datasets, reads = workload.catalogue.datasets, reads_of_files(workload)
    dataset = np.repeat(np.arange(datasets.role.size), datasets.n_files)
    place = (np.arange(reads.size) - workload.catalogue.first_file[dataset]) / datasets.n_files[dataset]
    some = (datasets.n_files[dataset] >= 20) & (datasets.role[dataset] == REREAD)
    return float(reads[some & (place < 0.1)].mean() / reads[some & (place >= 0.5)].mean())


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
        WorkloadConfig.from_mapping(values_of(**change))


def test_too_few_accesses_and_missing_habits_are_told() -> None:
    with pytest.raises(ConfigError, match="too few to read"):
        region(close_share=0.99)
    plain = values_of()
    del plain["habits"]
    with pytest.raises(ConfigError, match="return_days_median"):
        WorkloadConfig.from_mapping(plain)
