"""Parts of a trace, by the region of the origin or by activity, and how much of each the cache served."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from features.common.hosts import first_fit
from replay.study.benefit import SSD, BytesRead, Region, Tier
from replay.study.use import Use, total_by
from replay.trace import ItemArray

ACTIVITY, UNKNOWN = "activity", "unknown"


@dataclasses.dataclass(frozen=True)
class Part:
    """Accesses with one label: the files whose first access has it, and all accesses that have it."""

    label: str
    files: int
    footprint_bytes: int
    accesses: int
    hits: int
    requested_bytes: int
    hit_bytes: int


@dataclasses.dataclass(frozen=True)
class Origin(Part):
    """The accesses to one region, its `label`."""

    rtt_ms: float | None


def origins(use: Use, details: pa.Table, regions: Sequence[Region]) -> list[Origin]:
    """The regions of a trace in the order of `regions`, then `unknown`; without those that have no access.

    `details`: one row per access, with a column `origin` if the trace has one.
    """
    code, names = _codes(use, details, regions)
    rtt = {region.name: region.rtt_ms for region in regions}
    return [
        Origin(**dataclasses.asdict(part), rtt_ms=rtt.get(part.label)) for part in _parts(use, code, names)
    ]


def activities(use: Use, details: pa.Table) -> list[Part]:
    """The activities of a trace, `unknown` last; none if it has no column `activity`, or nothing in it."""
    code, names = activities_of(details)
    return list(_parts(use, code, names)) if names else []


def activities_of(details: pa.Table) -> tuple[ItemArray, list[str]]:
    """The activity of each access, and the names of activities, `unknown` last; no name if none is told."""
    if ACTIVITY not in details.column_names:
        return np.zeros(details.num_rows, np.int32), []
    encoded = coded(details[ACTIVITY])
    names = [*encoded.dictionary.to_pylist(), UNKNOWN]
    code = encoded.indices.fill_null(len(names) - 1).to_numpy().astype(np.int32)
    return code, names if len(names) > 1 else []


def _parts(use: Use, code: ItemArray, names: Sequence[str]) -> Iterator[Part]:
    """The parts that have accesses; `code`: the index in `names` of each access."""
    n, size = len(names), use.trace.size_bytes
    of_access = size[use.trace.item]
    of_file = np.full(use.trace.n_items, -1, np.int32)
    of_file[use.trace.item[::-1]] = code[::-1]
    columns = (
        np.bincount(of_file[of_file >= 0], minlength=n),
        total_by(of_file, size, n),
        np.bincount(code, minlength=n),
        np.bincount(code[use.hit], minlength=n),
        total_by(code, of_access, n),
        total_by(code, np.where(use.hit, of_access, 0), n),
    )
    return (Part(names[k], *(int(column[k]) for column in columns)) for k in range(n) if columns[2][k])


def reads(parts: Sequence[Origin], tier: Tier = SSD) -> BytesRead:
    """The input of the benefit model: bytes hit and missed by round-trip time; all hits are on `tier`."""
    return BytesRead(
        rtt_ms=np.array([np.nan if o.rtt_ms is None else o.rtt_ms for o in parts]),
        miss_bytes=np.array([o.requested_bytes - o.hit_bytes for o in parts], np.int64),
        hit_bytes=np.array([[o.hit_bytes] for o in parts], np.int64),
        tiers=(tier,),
    )


def _codes(use: Use, details: pa.Table, regions: Sequence[Region]) -> tuple[ItemArray, list[str]]:
    if "origin" in details.column_names:
        return regions_of(details["origin"], regions)
    names = [region.name for region in regions] + [UNKNOWN]
    return np.full(use.trace.n_accesses, len(regions), np.int32), names


def regions_of(origin: pa.ChunkedArray, regions: Sequence[Region]) -> tuple[ItemArray, list[str]]:
    """The region of each access by its origin (host, host:port, URL or RSE), and the regions' names.

    The first region with a matching pattern counts; case does not matter. The last name is `unknown`.
    """
    encoded = coded(origin)
    of_origin = first_fit(encoded.dictionary.cast(pa.string()), [region.hosts for region in regions])
    of_origin = np.append(of_origin, len(regions))
    code = encoded.indices.fill_null(-1).to_numpy()
    return of_origin[code].astype(np.int32), [region.name for region in regions] + [UNKNOWN]


def coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """The column in one chunk, encoded by one dictionary; an empty column too."""
    is_encoded = pa.types.is_dictionary(column.type)
    whole = (column if is_encoded else column.dictionary_encode()).unify_dictionaries().combine_chunks()
    return whole if isinstance(whole, pa.DictionaryArray) else whole.chunk(0)
