"""Features of a region: equal to plain loops, without leaks, carried as rebuilt, also from absurd records."""

import dataclasses
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases import cases
from hypothesis import given
from hypothesis import strategies as st
from region_oracle import US, features_of, usable_s
from worlds import Worlds, random_worlds, tables_of

from features.stream import events
from features.stream.facts import CATALOGUE, Stored
from features.stream.region import AGEING, Region

SEEDS = st.integers(0, 10**6)
TIMES = (0, 1, 5, 6, 11, 15, 16, 24, 40)


def region_of(worlds: Worlds, stored: Stored | None = None) -> Region:
    accesses, files = tables_of(worlds)
    return Region(
        accesses.select(list(events.COLUMNS)),
        files.select(list(CATALOGUE)),
        stored or Stored.empty(),
        worlds.spec,
    )


def rows_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    rows = {row.pop("did"): row for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    return rows


def instants(worlds: Worlds, times: tuple[int, ...] = TIMES) -> list[int]:
    return [worlds.start + k * worlds.spec.cycle_s for k in times]


@cases(5, thorough=300)
@given(seed=SEEDS, history_cycles=st.sampled_from((8, 100)))
def test_every_candidate_and_column_equals_plain_loops(seed: int, history_cycles: int) -> None:
    worlds = random_worlds(seed, n_worlds=4, history_cycles=history_cycles)
    region = region_of(worlds)
    n_rows = 0
    for as_of_s in instants(worlds):
        ours, theirs = rows_of(region.features(as_of_s)), features_of(worlds, as_of_s)
        assert ours.keys() == theirs.keys()
        n_rows += len(theirs)
        for did, row in theirs.items():
            for name, value in ours[did].items():
                expected = row[name]
                if isinstance(expected, str) or name in {"dataset", "tier", "campaign"}:
                    assert value == expected, (did, name)
                else:
                    is_there = np.nan if value is None else value
                    about = pytest.approx(expected, rel=1e-5, abs=1e-5, nan_ok=True)
                    assert is_there == about, (did, name, as_of_s)
    assert n_rows > 0


@cases(5, thorough=300)
@given(seed=SEEDS)
def test_nothing_known_at_as_of_or_later_changes_a_row(seed: int) -> None:
    worlds = random_worlds(seed, n_worlds=4)
    cycle_s, rng = worlds.spec.cycle_s, random.Random(seed)
    as_of_s = instants(worlds)[rng.randrange(1, 7)]
    past = [r for r in worlds.reads if usable_s(r, cycle_s) <= as_of_s]
    later = [dataclasses.replace(r, known=as_of_s * US, n=9, task="spy", tier="spy", size=1) for r in past]
    files = [f for f in worlds.files if f.known < as_of_s * US]
    new = [dataclasses.replace(f, did=f"{f.did}-new", known=as_of_s * US) for f in worlds.files]
    reads = [*past, *later]
    rng.shuffle(reads)
    without = dataclasses.replace(worlds, reads=past, files=files)
    among = dataclasses.replace(worlds, reads=reads, files=[*files, *new])
    for world in (without, among):
        ours = region_of(world).features(as_of_s).to_pydict()
        assert ours == region_of(worlds).features(as_of_s).to_pydict()


def carried(worlds: Worlds, cuts: list[int]) -> Stored:
    """The state at the last cut, carried from each one to the next."""
    stored, since_s = Stored.empty(), None
    for as_of_s in cuts:
        new = [
            r
            for r in worlds.reads
            if usable_s(r, worlds.spec.cycle_s) <= as_of_s
            and (since_s is None or usable_s(r, worlds.spec.cycle_s) > since_s)
        ]
        random.Random(as_of_s).shuffle(new)
        region = region_of(dataclasses.replace(worlds, reads=new), stored)
        region.features(as_of_s)
        stored, since_s = region.stored(as_of_s), as_of_s
    return stored


@cases(8, thorough=1000)
@given(seed=SEEDS, cuts=st.sets(st.integers(0, 40), min_size=1, max_size=8), forgets=st.booleans())
def test_a_carried_state_is_the_rebuilt_one_bit_by_bit(seed: int, cuts: set[int], forgets: bool) -> None:
    """With datasets that are forgotten, as long as what is stated of a file does not change."""
    worlds = random_worlds(seed, n_worlds=4, history_cycles=6 if forgets else 100, agreed=forgets)
    times = instants(worlds, tuple(sorted(cuts)))
    stored, rebuilt = carried(worlds, times), region_of(worlds)
    assert stored.rows.to_pydict() == rebuilt.stored(times[-1]).rows.to_pydict()
    nothing_new = region_of(dataclasses.replace(worlds, reads=[]), stored)
    assert nothing_new.features(times[-1]).to_pydict() == rebuilt.features(times[-1]).to_pydict()


def test_a_sample_holds_some_candidates_as_they_are() -> None:
    worlds = random_worlds(3, n_worlds=60)
    some = dataclasses.replace(worlds, spec=dataclasses.replace(worlds.spec, sample_share=0.3))
    n_all, n_sampled = 0, 0
    whole, sample = region_of(worlds), region_of(some)
    for as_of_s in instants(worlds):
        every, sampled = (rows_of(region.features(as_of_s)) for region in (whole, sample))
        assert sampled == {did: every[did] for did in sampled}
        n_all, n_sampled = n_all + len(every), n_sampled + len(sampled)
    assert n_sampled == pytest.approx(0.3 * n_all, rel=0.2)


@cases(5, thorough=300)
@given(seed=SEEDS, times=st.sets(st.integers(0, 60), min_size=2, max_size=12))
def test_rows_that_are_left_out_have_become_older_by_an_eighth_at_most(seed: int, times: set[int]) -> None:
    worlds = random_worlds(seed, n_worlds=4, history_cycles=100)
    spec, moments = worlds.spec, instants(worlds, tuple(sorted(times)))
    whole, sparing = region_of(worlds), region_of(worlds)
    standing: dict[str, dict[str, Any]] = {}
    made_s: dict[str, int] = {}
    for before_s, as_of_s in zip([None, *moments], moments, strict=False):
        changed, every = rows_of(sparing.features(as_of_s, before_s)), rows_of(whole.features(as_of_s))
        assert {did: row for did, row in every.items() if did in changed} == changed
        standing, made_s = standing | changed, made_s | dict.fromkeys(changed, as_of_s)
        assert every.keys() <= standing.keys()
        for did in every.keys() - changed.keys():
            now, then, later_s = every[did], standing[did], as_of_s - made_s[did]
            for name in ("n_reads", "dataset_n_passes", "tier", "dataset", "gap_0_s", "position"):
                assert now[name] == then[name], (did, name)
            assert now["dataset_recency_s"] == then["dataset_recency_s"] + later_s
            assert later_s <= now["dataset_recency_s"] * AGEING
        alive = {
            did
            for did, row in standing.items()
            if as_of_s
            <= made_s[did]
            + max(
                spec.active_dataset_s - row["dataset_recency_s"],
                -np.inf if row["recency_s"] is None else spec.candidate_s - row["recency_s"],
            )
        }
        assert alive == every.keys()


@pytest.mark.parametrize("has_reads", [True, False])
@pytest.mark.parametrize("has_files", [True, False])
def test_tables_may_be_empty(has_reads: bool, has_files: bool) -> None:
    worlds = random_worlds(2, n_worlds=3)
    nameless = [dataclasses.replace(f, dataset=None) for f in worlds.files]
    some = dataclasses.replace(
        worlds, reads=worlds.reads if has_reads else [], files=nameless if has_files else []
    )
    for as_of_s in instants(some):
        table = region_of(some).features(as_of_s)
        assert table.num_rows == len(features_of(some, as_of_s))
        assert bool(region_of(some).stored(as_of_s).rows.num_rows) <= has_reads


def test_absurd_records_harm_no_other_dataset() -> None:
    """Times at both ends, negative sizes, and more reads than a float can count, of one dataset."""
    worlds = random_worlds(5, n_worlds=3)
    model = dataclasses.replace(
        worlds.reads[0], did="z:hostile", dataset="z:d", tier="z" * 9999, user="\x00", task=None
    )
    absurd = [
        dataclasses.replace(model, at=at, known=at, size=size, n=n)
        for at in (0, worlds.start * US, (worlds.start + 1) * US, 4 * 10**15, 253 * 10**15)
        for size, n in ((-1, 1), (-(2**63), 2**62), (2**62, 2**62))
    ]
    liar = dataclasses.replace(
        worlds.files[0], did="z:hostile", dataset="z:d", size=-5, created=-(10**15), known=0
    )
    with_them = dataclasses.replace(worlds, reads=[*worlds.reads, *absurd], files=[*worlds.files, liar])
    floats = []
    for as_of_s in instants(worlds):
        ours = rows_of(region_of(with_them).features(as_of_s))
        hostile = ours.pop("z:hostile", {})
        assert ours == rows_of(region_of(worlds).features(as_of_s))
        floats += [value for value in hostile.values() if isinstance(value, float)]
    assert floats
    assert np.isfinite(floats).all()
