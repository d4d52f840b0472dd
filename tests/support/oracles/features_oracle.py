"""The features of small worlds by plain loops over the records, written from the docstrings.

Nothing here is production code: names of columns and the sketch of distinct members are written again.
`worlds` as the fixture `make_worlds` gives them: .spec, .reads, .files; instants in microseconds.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Iterable
from typing import Any, Protocol

import sketch_oracle

from features.xxh64 import xxh64

US = 1_000_000
FRONT_CYCLES = 3
"""Files of a dataset read within so many cycles are where its present pass is now."""
Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]


class Spec(Protocol):
    """The knobs, in seconds; see `features.spec.FeatureSpec`."""

    @property
    def cycle_s(self) -> int: ...
    @property
    def windows_s(self) -> tuple[int, ...]: ...
    @property
    def half_lives_s(self) -> tuple[int, ...]: ...
    @property
    def n_gaps(self) -> int: ...
    @property
    def candidate_s(self) -> int: ...
    @property
    def active_dataset_s(self) -> int: ...
    @property
    def unread_per_dataset(self) -> int: ...


def history_s(spec: Spec) -> int:
    return max(*spec.windows_s, spec.candidate_s, spec.active_dataset_s)


def span(seconds: int) -> str:
    """`1d`, `4h`, `90m` or `30s`: the largest unit that divides."""
    return next(
        f"{seconds // size}{unit}"
        for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
        if seconds % size == 0
    )


def known(records: Iterable[Any], as_of: int) -> list[Any]:
    return [record for record in records if record.known < as_of * US]


def within(reads: Iterable[Any], as_of: int, seconds: int) -> list[Any]:
    return [read for read in reads if (as_of - seconds) * US <= read.at < as_of * US]


def popularity(reads: Iterable[Any], as_of: int, spec: Spec, prefix: str = "") -> Row:
    past = within(reads, as_of, history_s(spec))
    cycle = spec.cycle_s * US
    row: Row = {}
    for w in spec.windows_s:
        inside = within(past, as_of, w)
        row[f"n_access_{span(w)}"] = sum(r.n for r in inside)
        row[f"read_bytes_{span(w)}"] = sum(bytes_of(r) for r in inside)
        row[f"n_active_{span(w)}"] = len({r.at // cycle for r in inside})
    ages = [(r.n, as_of - r.at // cycle * spec.cycle_s) for r in past]
    for h in spec.half_lives_s:
        row[f"decayed_{span(h)}"] = sum(n * round(2 ** (32 - age / h)) / 2**32 for n, age in ages)
    row["n_users"] = distinct(r.user for r in past)
    row["n_tasks"] = distinct(r.task for r in past)
    row["recency_s"] = as_of - max(r.at // US for r in past) if past else None
    row["first_read_s"] = as_of - min(r.at // US for r in past) if past else None
    row["n_same_hour"] = sum(n for n, age in ages if age % 86400 == 0)
    row["n_same_weekday"] = sum(n for n, age in ages if age % (7 * 86400) == 0)
    last_by_cycle: dict[int, int] = {}
    for r in past:
        last_by_cycle[r.at // cycle] = max(last_by_cycle.get(r.at // cycle, 0), r.at // US)
    lasts = [last_by_cycle[c] for c in sorted(last_by_cycle, reverse=True)]
    for k in range(1, spec.n_gaps + 1):
        row[f"gap_{k}_s"] = lasts[k - 1] - lasts[k] if k < len(lasts) else None
    return {prefix + name: value for name, value in row.items()}


def difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def bytes_of(read: Any) -> int:
    return next((value for value in (read.bytes, read.size) if value is not None), 0)


def sketch(members: Iterable[str | None]) -> tuple[int, ...]:
    return sketch_oracle.sketch(xxh64(str(member).encode(), 42) for member in set(members) - {None})


def distinct(members: Iterable[str | None]) -> int:
    return sketch_oracle.estimate(sketch(members))


def signed(words: Iterable[int]) -> tuple[int, ...]:
    return tuple(word - 2**64 if word >= 2**63 else word for word in words)


FACTS = ("dataset", "tier", "campaign", "size", "created")
PROGRESS = (
    *("dataset_n_files", "dataset_touched_share", "dataset_n_passes"),
    *("dataset_pass_age_s", "dataset_pass_rate", "dataset_shift_s"),
)
"""How far a dataset's present pass is."""


class Instant:
    """What a world's files and datasets look like at one as_of."""

    def __init__(self, reads: list[Any], files: list[Any], as_of: int, spec: Spec) -> None:
        self.as_of, self.spec = as_of, spec
        self.reads = known(reads, as_of)
        self.files = {file.did: file for file in known(files, as_of)}
        self.by_dataset: dict[str, list[Any]] = {}
        self.by_group: dict[str, dict[str, list[Any]]] = {"tier": {}, "campaign": {}}
        for read in self.reads:
            facts = self._facts(read)
            self.by_dataset.setdefault(facts["dataset"], []).append(read)
            for kind, reads_by_name in self.by_group.items():
                reads_by_name.setdefault(facts[kind], []).append(read)

    def _file_at(self, read: Any) -> Any:
        """The catalogue's row, if it was known by the first as_of that may use the read."""
        file, cycle = self.files.get(read.did), self.spec.cycle_s * US
        return file if file is not None and file.known // cycle <= read.known // cycle else None

    def _facts(self, read: Any) -> Row:
        file = self._file_at(read)
        of_read = {
            "dataset": read.dataset,
            "tier": read.tier,
            "campaign": read.campaign,
            "size": read.size,
            "created": None,
        }
        if file is None:
            return of_read
        return {
            "dataset": read.dataset if read.dataset is not None else file.dataset,
            "tier": file.tier if file.tier is not None else read.tier,
            "campaign": file.campaign if file.campaign is not None else read.campaign,
            "size": file.size,
            "created": None if file.created is None else file.created // US,
        }

    def _latest(self, reads: list[Any], fact: str) -> Any:
        """The fact of the latest cell that has it; cells in the order of their fields."""
        cells: dict[tuple[Any, ...], list[Any]] = {}
        cycle = self.spec.cycle_s * US
        for r in reads:
            key = (r.at // cycle, r.known // cycle, r.dataset, r.tier, r.campaign, r.size)
            cells.setdefault(key, []).append(r)
        ordered = sorted(
            (
                (
                    *(key[0], max(r.at // US for r in cell), key[1]),
                    *(sum(r.n for r in cell), sum(map(bytes_of, cell)), min(r.at // US for r in cell)),
                    *signed(sketch(r.user for r in cell)),
                    *signed(sketch(r.task for r in cell)),
                    *(("",) if v is None else ("x", v) for v in self._facts(cell[0]).values()),
                ),
                self._facts(cell[0])[fact],
            )
            for key, cell in cells.items()
            if self._facts(cell[0])[fact] is not None
        )
        return ordered[-1][1] if ordered else None

    def _exists(self, file: Any) -> bool:
        return file.created is None or file.created < self.as_of * US

    def _is_active(self, dataset: str | None) -> bool:
        reads = self.by_dataset.get(dataset, []) if dataset is not None else []
        return bool(within(reads, self.as_of, self.spec.active_dataset_s))

    def _counted(self, did: str) -> list[Any]:
        return within([r for r in self.reads if r.did == did], self.as_of, history_s(self.spec))

    def candidates(self) -> set[str]:
        found = set()
        for did in {r.did for r in self.reads}:
            counted = self._counted(did)
            recent = within(counted, self.as_of, self.spec.candidate_s)
            if counted and (recent or self._is_active(self._latest(counted, "dataset"))):
                found.add(did)
        unread: dict[str, list[str]] = {}
        for file in self.files.values():
            if not self._counted(file.did) and self._exists(file) and self._is_active(file.dataset):
                unread.setdefault(file.dataset, []).append(file.did)
        return found.union(*(sorted(dids)[: self.spec.unread_per_dataset] for dids in unread.values()))

    def row(self, did: str) -> Row:
        own = self._counted(did)
        if own:
            facts = {name: self._latest(own, name) for name in FACTS}
        else:
            file = self.files[did]
            facts = {name: getattr(file, name) for name in FACTS}
            facts["created"] = None if file.created is None else file.created // US
        time = dt.datetime.fromtimestamp(self.as_of, dt.UTC)
        created = facts["created"]
        of_file = popularity(own, self.as_of, self.spec)
        of_dataset = self._dataset_row(facts["dataset"])
        return {
            "dataset": facts["dataset"],
            "tier": facts["tier"],
            "campaign": facts["campaign"],
            "size_bytes": facts["size"],
            "age_s": None if created is None else max(self.as_of - created, 0),
            "hour": time.hour,
            "weekday": time.weekday(),
            **of_file,
            **of_dataset,
            "due_s": difference(of_dataset["dataset_shift_s"], of_file["recency_s"]),
            **self._group_row("tier", facts["tier"]),
            **self._group_row("campaign", facts["campaign"]),
        }

    def _group_row(self, kind: str, name: str | None) -> Row:
        reads = self.by_group[kind].get(name, []) if name is not None else []
        past = within(reads, self.as_of, history_s(self.spec))
        return {
            f"{kind}_n_access_{span(w)}": sum(r.n for r in within(reads, self.as_of, w)) if past else None
            for w in self.spec.windows_s
        }

    def _dataset_row(self, dataset: str | None) -> Row:
        reads = within(self.by_dataset.get(dataset, []), self.as_of, history_s(self.spec)) if dataset else []
        row = popularity(reads, self.as_of, self.spec, "dataset_")
        if dataset is None or not reads:
            return dict.fromkeys([*row, *PROGRESS])
        return row | dict(zip(PROGRESS, self._progress(dataset, reads), strict=True))

    def _progress(self, dataset: str, reads: list[Any]) -> tuple[float | None, ...]:
        cycle = self.spec.cycle_s * US
        cells: dict[tuple[int, int], list[Any]] = {}
        for read in reads:
            cells.setdefault((read.at // cycle, read.known // cycle), []).append(read)
        lasts = {(key[0], max(r.at // US for r in cell), key[1]): cell for key, cell in cells.items()}
        ordered = [lasts[key] for key in sorted(lasts, reverse=True)]
        starts = []
        for i, cell in enumerate(ordered):
            before = max(r.at // US for r in ordered[i + 1]) if i + 1 < len(ordered) else None
            if before is None or min(r.at // US for r in cell) - before > self.spec.active_dataset_s:
                starts.append(cell)
        this_pass = [r for r in reads if r.at // cycle >= starts[0][0].at // cycle]
        touched = distinct(r.did for r in this_pass)
        members = [f for f in self.files.values() if f.dataset == dataset and self._exists(f)]
        n_files = len(members) or distinct(r.did for r in reads)
        age = self.as_of - min(r.at // US for r in starts[0])
        share, rate = min(touched / n_files, 1.0), touched * 3600 / max(age, 1)
        return n_files, share, len(starts), age, rate, self._shift(dataset)

    def _shift(self, dataset: str) -> float | None:
        found = []
        for did in {r.did for r in self.reads}:
            own = self._counted(did)
            if own and self._latest(own, "dataset") == dataset:
                row = popularity(own, self.as_of, self.spec)
                in_front = max(r.at for r in own) >= (self.as_of - FRONT_CYCLES * self.spec.cycle_s) * US
                found += [row["gap_1_s"]] if in_front and row["gap_1_s"] is not None else []
        return statistics.median(found) if found else None


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
