"""Small random worlds of reads and files, and how they become tables."""

import dataclasses
import datetime as dt
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from features.schema import ACCESSES, FILES, Table, arrow_schema
from features.spec import FeatureSpec
from features.stream.names import joined

HOUR, DAY, SECOND_US = 3600, 86400, 1_000_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Read:
    """One row of accesses; instants in microseconds since 1970."""

    did: str
    dataset: str | None
    tier: str | None
    campaign: str | None
    at: int
    known: int
    size: int | None
    bytes: int | None
    n: int
    user: str | None
    task: str | None


@dataclass(frozen=True)
class File:
    """One row of files; instants in microseconds since 1970."""

    did: str
    dataset: str | None
    tier: str | None
    campaign: str | None
    size: int
    created: int | None
    known: int


@dataclass
class Worlds:
    """Many worlds in one: dids and groups carry their world's number, so they do not meet."""

    spec: FeatureSpec
    start: int
    reads: list[Read]
    files: list[File]


def spec_of(cycle_s: int, history_cycles: int) -> FeatureSpec:
    return FeatureSpec(
        cycle_s=cycle_s,
        horizons_s=(cycle_s, 3 * cycle_s),
        candidate_s=6 * cycle_s,
        active_dataset_s=2 * cycle_s,
        unread_per_dataset=1,
        history_s=history_cycles * cycle_s,
    )


def random_worlds(
    seed: int, *, n_worlds: int, cycle_s: int = 4 * HOUR, history_cycles: int = 100, agreed: bool = False
) -> Worlds:
    """Reads over 20 cycles: at boundaries and a microsecond beside them, tied, late, of unknown size.

    `agreed`: all that is stated of a file, and whenever, is the same.
    """
    start = 1_772_323_200 // cycle_s * cycle_s
    worlds = Worlds(spec_of(cycle_s, history_cycles), start, [], [])
    for number in range(n_worlds):
        rng = random.Random(seed * 1000 + number)
        names = [f"w{number}:f{i}" for i in range(rng.randint(1, 6))]
        homes = [f"w{number}:d{i}" for i in range(rng.randint(1, 2))] + [None]
        home = {name: rng.choice(homes) for name in names}
        for _ in range(rng.choice((1, 5, 30, 60))):
            name = rng.choice(names)
            worlds.reads.append(_read(rng, name, home[name], _instant(rng, start, cycle_s), cycle_s))
        for name in (
            n
            for n in [*names, f"w{number}:cold0", f"w{number}:cold1", f"w{number}:cold2"]
            if rng.random() < 0.6
        ):
            worlds.files.append(_file(rng, name, home.get(name, homes[0]), start, cycle_s))
    return _agreed(worlds, start) if agreed else worlds


def _agreed(worlds: Worlds, start: int) -> Worlds:
    homes = {read.did: f"{read.did.partition(':')[0]}:d{len(read.did) % 2}" for read in worlds.reads}
    same: dict[str, Any] = {"tier": "AOD", "campaign": "2018", "size": 7}
    of_files = same | {"created": None, "known": start * SECOND_US - 1}
    for k, read in enumerate(worlds.reads):
        worlds.reads[k] = dataclasses.replace(read, dataset=homes[read.did], **same)
    for k, file in enumerate(worlds.files):
        dataset = homes.get(file.did, file.dataset)
        worlds.files[k] = dataclasses.replace(file, dataset=dataset, **of_files)
    return worlds


def _instant(rng: random.Random, start: int, cycle_s: int) -> int:
    cycle, nudge = rng.randint(0, 19), rng.choice((0, 0, 1, -1, SECOND_US, None))
    inside = rng.randrange(cycle_s * SECOND_US) if nudge is None else nudge
    return (start + cycle * cycle_s) * SECOND_US + inside


def _read(rng: random.Random, did: str, dataset: str | None, at: int, cycle_s: int) -> Read:
    lateness = rng.choice((0, 1, HOUR * SECOND_US, cycle_s * SECOND_US, 7 * cycle_s * SECOND_US, -SECOND_US))
    lateness = -3 * cycle_s * SECOND_US if rng.random() < 0.05 else lateness
    world = did.partition(":")[0]
    stray = dataset and rng.random() < 0.05
    return Read(
        did=did,
        dataset=f"{dataset}-other" if stray else dataset if rng.random() < 0.8 else None,
        tier=rng.choice((f"{world}:AOD", f"{world}:AOD", f"{world}:MINIAOD", None)),
        campaign=rng.choice((f"{world}:2018", f"{world}:2024", None)),
        at=at,
        known=at + lateness,
        size=rng.choice((None, 5_000_000_000, 5_000_000_001)),
        bytes=rng.choice((None, 0, 10**9, rng.randrange(10**12))),
        n=rng.choice((1, 1, 2, 1000)),
        user=rng.choice((*(f"u{i}" for i in range(40)), *["u0", None] * 10)),
        task=rng.choice(("t1", "t2", None)),
    )


def _file(rng: random.Random, did: str, dataset: str | None, start: int, cycle_s: int) -> File:
    return File(
        did=did,
        dataset=dataset if rng.random() < 0.8 else None,
        tier=rng.choice((f"{did.partition(':')[0]}:AOD", None)),
        campaign=rng.choice((f"{did.partition(':')[0]}:2018", None)),
        size=rng.randrange(1, 10**10),
        created=rng.choice((None, _instant(rng, start, cycle_s), (start - 90 * DAY) * SECOND_US)),
        known=rng.choice((start * SECOND_US, _instant(rng, start, cycle_s))),
    )


def _time(instant: int | None) -> dt.datetime | None:
    return None if instant is None else EPOCH + dt.timedelta(microseconds=instant)


def access_row(read: Read, number: int) -> dict[str, Any]:
    scope, name = read.did.split(":", 1)
    return {
        "did": read.did, "scope": scope, "name": name, "dataset": read.dataset,
        "tier": read.tier, "campaign": read.campaign,
        "accessed_at": _time(read.at), "known_at": _time(read.known), "size_bytes": read.size,
        "read_bytes": read.bytes, "n_reads": read.n, "user": read.user, "task": read.task,
        "source": "test", "event_id": f"e{number}", "day": f"{_time(read.at):%Y-%m-%d}",
    }  # fmt: skip


def file_row(file: File) -> dict[str, Any]:
    scope, name = file.did.split(":", 1)
    return {
        "did": file.did, "scope": scope, "name": name, "dataset": file.dataset,
        "tier": file.tier, "campaign": file.campaign,
        "size_bytes": file.size, "created_at": _time(file.created), "known_at": _time(file.known),
    }  # fmt: skip


def tables_of(worlds: Worlds) -> tuple[pa.Table, pa.Table]:
    """The accesses and the files of worlds, as the table store gives them."""
    accesses = [access_row(read, number) for number, read in enumerate(worlds.reads)]
    return _arrow(ACCESSES, accesses), _arrow(FILES, [file_row(file) for file in worlds.files])


def _arrow(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    stored = [*arrow_schema(table), *(pa.field(name, pa.string()) for name in table.partition)]
    return pa.Table.from_pylist(rows, pa.schema(stored))


def coded(rows: pa.Table) -> pa.Table:
    """`rows` in one chunk, each column of texts encoded by one dictionary, as tables are read."""
    rows = joined(rows)
    is_text = {field.name: pa.types.is_string(field.type) for field in rows.schema}
    return pa.table(
        {name: pc.dictionary_encode(rows[name]) if is_text[name] else rows[name] for name in is_text}
    )
