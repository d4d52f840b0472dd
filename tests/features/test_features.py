"""Every feature against plain loops over the records, written from the docstrings; and no leak from later."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from features.spark.features import features
from features.spec import FeatureSpec
from features.units import duration_label

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

US = 1_000_000
Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]


# The oracle. `worlds` as the fixture gives them: .spec, .reads, .files; instants in microseconds.


def known(records: Iterable[Any], as_of: int) -> list[Any]:
    return [record for record in records if record.known < as_of * US]


def within(reads: Iterable[Any], as_of: int, seconds: int) -> list[Any]:
    return [read for read in reads if (as_of - seconds) * US <= read.at < as_of * US]


def popularity(reads: Iterable[Any], as_of: int, spec: FeatureSpec, prefix: str = "") -> Row:
    past = within(reads, as_of, spec.history_s)
    cycle = spec.cycle_s * US
    row: Row = {}
    for w in spec.windows_s:
        inside = within(past, as_of, w)
        row[f"n_access_{duration_label(w)}"] = sum(r.n for r in inside)
        row[f"read_bytes_{duration_label(w)}"] = sum(
            r.bytes if r.bytes is not None else r.size if r.size is not None else 0 for r in inside
        )
        row[f"n_active_{duration_label(w)}"] = len({r.at // cycle for r in inside})
    for h in spec.half_lives_s:
        ages = [(r.n, as_of - r.at // cycle * spec.cycle_s) for r in past]
        row[f"decayed_{duration_label(h)}"] = sum(n * round(2 ** (32 - age / h)) / 2**32 for n, age in ages)
    row["n_users"] = len({r.user for r in past} - {None})
    row["n_tasks"] = len({r.task for r in past} - {None})
    row["recency_s"] = as_of - max(r.at // US for r in past) if past else None
    row["first_read_s"] = as_of - min(r.at // US for r in past) if past else None
    last_by_cycle: dict[int, int] = {}
    for r in past:
        last_by_cycle[r.at // cycle] = max(last_by_cycle.get(r.at // cycle, 0), r.at // US)
    lasts = sorted(last_by_cycle.values(), reverse=True)
    for k in range(1, spec.n_gaps + 1):
        row[f"gap_{k}_s"] = lasts[k - 1] - lasts[k] if k < len(lasts) else None
    return {prefix + name: value for name, value in row.items()}


def greatest(values: Iterable[Any]) -> Any:
    return max((v for v in values if v is not None), default=None)


class Instant:
    """What a world's files and datasets look like at one as_of."""

    def __init__(self, reads: list[Any], files: list[Any], as_of: int, spec: FeatureSpec) -> None:
        self.as_of, self.spec = as_of, spec
        self.reads = known(reads, as_of)
        self.files = {file.did: file for file in known(files, as_of)}
        cells: dict[tuple[Any, ...], list[Any]] = {}
        for read in self.reads:
            cells.setdefault(self._cell(read), []).append(read)
        self.by_dataset: dict[str, list[Any]] = {}
        for read in self.reads:
            dataset = greatest(other.dataset for other in cells[self._cell(read)])
            if dataset is None and read.did in self.files:
                dataset = self.files[read.did].dataset
            if dataset is not None:
                self.by_dataset.setdefault(dataset, []).append(read)

    def _cell(self, read: Any) -> tuple[Any, ...]:
        cycle = self.spec.cycle_s * US
        return read.did, read.at // cycle, read.known // cycle

    def _exists(self, file: Any) -> bool:
        return file.created is None or file.created < self.as_of * US

    def candidates(self) -> set[str]:
        found = {r.did for r in within(self.reads, self.as_of, self.spec.candidate_s)}
        for file in self.files.values():
            of_dataset = self.by_dataset.get(file.dataset, [])
            if self._exists(file) and within(of_dataset, self.as_of, self.spec.active_dataset_s):
                found.add(file.did)
        return found

    def row(self, did: str) -> Row:
        own = [r for r in self.reads if r.did == did]
        recent = within(own, self.as_of, self.spec.candidate_s)
        file = self.files.get(did)
        dataset = greatest(r.dataset for r in recent) or (file.dataset if file else None)
        time = dt.datetime.fromtimestamp(self.as_of, dt.UTC)
        created = file.created if file else None
        return {
            "dataset": dataset,
            "tier": (file.tier if file else None) or greatest(r.tier for r in recent),
            "size_bytes": file.size if file else greatest(r.size for r in recent),
            "age_s": None if created is None else max(self.as_of - created // US, 0),
            "hour": time.hour,
            "weekday": time.weekday(),
            **popularity(own, self.as_of, self.spec),
            **self._dataset_row(dataset),
        }

    def _dataset_row(self, dataset: str | None) -> Row:
        spec, as_of = self.spec, self.as_of
        names = [*spec.popularity_columns("dataset_"), "dataset_n_files", "dataset_touched_share"]
        if dataset is None:
            return dict.fromkeys(names)
        reads = self.by_dataset[dataset]
        members = [f for f in self.files.values() if f.dataset == dataset and self._exists(f)]
        n_files = len(members) or len({r.did for r in within(reads, as_of, spec.history_s)})
        touched = len({r.did for r in within(reads, as_of, spec.active_dataset_s)})
        return {
            **popularity(reads, as_of, spec, "dataset_"),
            "dataset_n_files": n_files,
            "dataset_touched_share": min(touched / n_files, 1.0),
        }


def expected(worlds: Any, as_ofs: list[int], *, catalogue: bool = True) -> Rows:
    by_world: dict[str, tuple[list[Any], list[Any]]] = {}
    for read in worlds.reads:
        by_world.setdefault(read.did.split(":")[0], ([], []))[0].append(read)
    for file in worlds.files if catalogue else []:
        by_world.setdefault(file.did.split(":")[0], ([], []))[1].append(file)
    rows: Rows = {}
    for reads, files in by_world.values():
        for as_of in as_ofs:
            instant = Instant(reads, files, as_of, worlds.spec)
            text = f"{dt.datetime.fromtimestamp(as_of, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
            rows |= {(did, text): instant.row(did) for did in instant.candidates()}
    return rows


# The tests.


def collected(frame: DataFrame) -> Rows:
    rows = [row.asDict() for row in frame.collect()]
    found = {(row.pop("did"), row.pop("as_of")): row for row in rows}
    assert len(found) == len(rows), "(did, as_of) is not unique"
    assert all(row.pop("day") == as_of[:10] and row.pop("region") == "r" for (_, as_of), row in found.items())
    return found


def assert_equal(found: Rows, wanted: Rows) -> None:
    assert found.keys() == wanted.keys()
    assert wanted, "the worlds are empty"
    for key, row in wanted.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            inexact = isinstance(value, float)
            assert found[key][name] == (pytest.approx(value, rel=1e-9) if inexact else value), (key, name)


def instants(worlds: Any) -> list[int]:
    return [worlds.start + k * worlds.spec.cycle_s for k in (1, 5, 6, 11, 15, 16, 24)]


@pytest.fixture(scope="module")
def worlds(make_worlds: Callable[..., Any]) -> Any:
    return make_worlds(1, n_worlds=60)


@pytest.fixture(scope="module")
def found(worlds: Any, frames: Callable[..., Any]) -> Rows:
    accesses, files = frames(worlds)
    return collected(features(accesses, files, instants(worlds), spec=worlds.spec, region="r"))


def test_every_feature_equals_plain_loops(worlds: Any, found: Rows) -> None:
    wanted = expected(worlds, instants(worlds))
    assert_equal(found, wanted)
    for name in worlds.spec.numeric_columns:
        assert len({row[name] for row in wanted.values()}) > 1, f"{name} is never tried"


def test_without_a_catalogue_only_read_files_are_candidates(worlds: Any, frames: Callable[..., Any]) -> None:
    accesses, _ = frames(worlds)
    rows = collected(features(accesses, None, instants(worlds), spec=worlds.spec, region="r"))
    assert_equal(rows, expected(worlds, instants(worlds), catalogue=False))


def test_nothing_known_at_as_of_or_later_changes_a_feature(
    worlds: Any, found: Rows, frames: Callable[..., Any]
) -> None:
    as_of, rng = instants(worlds)[4], random.Random(5)
    past, future = known(worlds.reads, as_of), [r for r in worlds.reads if r.known >= as_of * US]
    assert future
    changed = [dataclasses.replace(r, n=r.n + 7, user="spy", known=as_of * US) for r in future]
    doubled = [dataclasses.replace(r, known=as_of * US, bytes=1, dataset=None) for r in past]
    files = known(worlds.files, as_of) + [
        dataclasses.replace(f, did=f"{f.did}-new", known=as_of * US) for f in worlds.files
    ]
    reads = [*past, *changed[::2], *doubled]
    rng.shuffle(reads)
    accesses, catalogue = frames(dataclasses.replace(worlds, reads=reads, files=files))
    again = collected(features(accesses, catalogue, [as_of], spec=worlds.spec, region="r"))
    text = f"{dt.datetime.fromtimestamp(as_of, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert again == {key: row for key, row in found.items() if key[1] == text}  # bit by bit


def test_weekly_datasets(make_worlds: Callable[..., Any], frames: Callable[..., Any]) -> None:
    worlds = make_worlds(2, n_worlds=20, cycle_s=7 * 86400, datasets=False)
    accesses, _ = frames(worlds)
    rows = collected(features(accesses, None, instants(worlds), spec=worlds.spec, region="r"))
    assert_equal(rows, expected(worlds, instants(worlds), catalogue=False))
    assert {row["dataset_n_access_7d"] for row in rows.values()} == {None}


@pytest.mark.parametrize("as_ofs", [[], [1_772_323_201]])
def test_as_ofs_must_be_on_the_grid(worlds: Any, frames: Callable[..., Any], as_ofs: list[int]) -> None:
    accesses, files = frames(worlds)
    with pytest.raises(ValueError, match="as_of"):
        features(accesses, files, as_ofs, spec=worlds.spec, region="r")


def test_columns_are_the_tables(worlds: Any, frames: Callable[..., Any]) -> None:
    accesses, files = frames(worlds)
    table = worlds.spec.features_table
    frame = features(accesses, files, instants(worlds), spec=worlds.spec, region="r")
    assert frame.columns == [*table.column_names, *table.partition]
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert {kinds[name] for name in worlds.spec.numeric_columns} == {"double"}
