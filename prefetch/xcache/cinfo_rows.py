"""A cache's namespace as Arrow batches: one row a file, with the accesses its cinfo remembers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from prefetch.xcache.cinfo import AccessRecord, CInfo
from prefetch.xcache.namespace import WalkedFile, walk

BATCH_FILES = 10_000
BATCH_RECORDS = 500_000
"""Most access records in a batch, some 500 bytes each in memory: a forged cinfo may have many per file."""
SAMPLE_CHARS = 200
_RECORD_BYTES = 500
_LONG, _BOOL, _TEXT = pa.int64(), pa.bool_(), pa.string()


class Remembered(NamedTuple):
    """One access record. Times are s since 1970; `detach_s` is None while the file is open.

    `nth`: among the file's records that began in the same second, from 0. `n_reads`: more than 1 where the
    cache merged records; `wall_s` is then their sum. `bytes_hit` to `bytes_bypassed` are the cache's own
    counts; `bytes_fetched`: see `_fetched`. `is_ours`: at most a byte per block was read in each read.
    """

    attach_s: int
    nth: int
    detach_s: int | None
    wall_s: int
    n_reads: int
    bytes_hit: int
    bytes_missed: int
    bytes_bypassed: int
    bytes_read: int
    bytes_fetched: int
    is_ours: bool


_RECORD = pa.struct([(name, _BOOL if name == "is_ours" else _LONG) for name in Remembered._fields])
SCHEMA = pa.schema(
    [
        *((name, _TEXT) for name in ("name", "fault", "detail")),
        *((name, _LONG) for name in ("size_bytes", "bytes_on_disk", "n_accesses", "last_detach_s")),
        *((name, _BOOL) for name in ("complete", "open")),
        ("records", pa.list_(_RECORD)),
    ]
)


def batches(namespace: Path, spaces: Sequence[Path] = ()) -> Iterator[pa.RecordBatch]:
    """Every cinfo below `namespace`, a row per file.

    Where one cannot be used, `fault` says why, and `detail` gives name and error. `spaces`: see `walk`.
    At most `BATCH_FILES` files, and `BATCH_RECORDS` records and those of one file more, are in memory. Raises
    InputError if there is no such folder.
    """
    some: list[WalkedFile] = []
    n_records = 0
    for file in walk(namespace, spaces):
        some.append(file)
        if file.info is not None:  # its block map counts as if it were records
            n_records += len(file.info.accesses) + len(file.info.blocks) // _RECORD_BYTES
        if len(some) == BATCH_FILES or n_records >= BATCH_RECORDS:
            yield _batch(some)
            some, n_records = [], 0
    if some:
        yield _batch(some)


def remembered(info: CInfo) -> list[Remembered]:
    """The accesses that `info` remembers, oldest first.

    An open record before the last one is of a cache that died: it ends after the mean duration of its opens,
    as XCache itself ends it. The last record, if open, has no end yet.
    """
    died = [
        access.detach_s or access.attach_s + access.duration_s // max(1, access.n_ios)
        for access in info.accesses[:-1]
    ]
    ends = [*died, *(access.detach_s or None for access in info.accesses[-1:])]
    begun: Counter[int] = Counter()
    records = []
    for access, end, fetched in zip(info.accesses, ends, _fetched(info), strict=True):
        records.append(_remembered(info, access, end, begun[access.attach_s], fetched))
        begun[access.attach_s] += 1
    return records


def _fetched(info: CInfo) -> list[int]:
    """Bytes fetched for each access of `info`: together those on disk, and those read past it.

    XCache counts a read of a block that is still coming as a hit, so of what it fetched only a part counts as
    missed. An access that missed at all, or began with nothing on disk, fetched what it read, as far as there
    is so much; the rest, of sparse reads or read ahead, is shared out by the bytes missed, or was read ahead
    for the first. A prefetch of ours reads one byte of each block.
    """
    left, fetched, missed = info.bytes_on_disk, [0] * len(info.accesses), [0] * len(info.accesses)
    is_ours = [_is_ours(info, access) for access in info.accesses]
    for at in sorted(range(len(fetched)), key=lambda at: not is_ours[at]):
        access = info.accesses[at]
        n_missed = max(0, access.bytes_missed)
        most = n_missed * info.block_size_bytes
        if not is_ours[at]:
            most, missed[at] = max(0, access.bytes_read) if n_missed or not at else 0, n_missed
        fetched[at] = min(left, most)
        left -= fetched[at]
    if n_missed := sum(missed):
        fetched = [n + left * part // n_missed for n, part in zip(fetched, missed, strict=True)]
    elif fetched:
        fetched[0] += left
    return [
        n_bytes + max(0, access.bytes_bypassed)
        for n_bytes, access in zip(fetched, info.accesses, strict=True)
    ]


def _remembered(info: CInfo, access: AccessRecord, end: int | None, nth: int, fetched: int) -> Remembered:
    n_reads, read = _n_reads(access), access.bytes_read
    if fetched and n_reads == 1 and info.complete and read > info.size_bytes:
        # xrdcp 5.5 copying a file for the first time has up to half of it counted twice.
        read -= read % max(1, info.size_bytes)
    return Remembered(
        attach_s=access.attach_s,
        nth=nth,
        detach_s=end if end is None else _in_64_bits(end),
        wall_s=access.duration_s if n_reads > 1 or end is None else _in_64_bits(end - access.attach_s),
        n_reads=n_reads,
        bytes_hit=access.bytes_hit,
        bytes_missed=access.bytes_missed,
        bytes_bypassed=access.bytes_bypassed,
        bytes_read=_in_64_bits(read),
        bytes_fetched=_in_64_bits(fetched),
        is_ours=_is_ours(info, access),
    )


def _n_reads(access: AccessRecord) -> int:
    return 1 + max(0, access.n_merged)


def _is_ours(info: CInfo, access: AccessRecord) -> bool:
    return access.bytes_read <= _n_reads(access) * info.n_blocks


def _in_64_bits(number: int) -> int:
    return max(-(2**63), min(number, 2**63 - 1))


def _batch(files: Sequence[WalkedFile]) -> pa.RecordBatch:
    infos = [file.info for file in files]
    records = [[] if info is None else remembered(info) for info in infos]
    offsets = pa.array(accumulate(map(len, records), initial=0), pa.int32())
    every = list(chain.from_iterable(records))
    values = zip(*every, strict=True) if every else [()] * len(_RECORD)
    arrays = [pa.array(column, field.type) for column, field in zip(values, _RECORD, strict=True)]
    structs = pa.StructArray.from_arrays(arrays, fields=list(_RECORD))
    columns = {
        "name": _texts(file.name for file in files),
        "fault": _texts(file.fault or None for file in files),
        "detail": _texts(file.detail[:SAMPLE_CHARS] or None for file in files),
        "size_bytes": pa.array([info and info.size_bytes for info in infos], _LONG),
        "bytes_on_disk": pa.array([info and info.bytes_on_disk for info in infos], _LONG),
        "n_accesses": pa.array([info and _in_64_bits(info.n_accesses) for info in infos], _LONG),
        "last_detach_s": pa.array([info and info.last_detach_s for info in infos], _LONG),
        "complete": pa.array([info and info.complete for info in infos], _BOOL),
        "open": pa.array([info and info.is_open for info in infos], _BOOL),
        "records": pa.ListArray.from_arrays(offsets, structs),
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def _texts(texts: Iterable[str | None]) -> pa.Array:
    # A name of a file system need not be text.
    plain = (text and text.encode("utf-8", "backslashreplace").decode() for text in texts)
    return pa.array(plain, _TEXT)
