"""What of a queue's announcements came true: what it claimed on a day, against the reads of that time."""

import datetime as dt
import fnmatch
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.common.arrays import BoolArray, FloatArray, IntArray
from features.common.times import DAY_S, day_label, parse_as_of
from features.results import ANNOUNCED
from features.schema import ACCESSES, FILES, QUEUE
from jobs.ground.store.commits import Key
from jobs.ground.store.tables import Tables
from jobs.loop.ingest.announced import LOOKS_BACK
from jobs.loop.ingest.queued_files import at, files_named, inputs_of, known_files

_LATE_S = 6 * 3600  # so long after the last entry of a day has run out, the reads of it are known
_PATIENCE_S = 7 * DAY_S  # what was announced may be put off, or announced anew, before it is judged
_INPUT = ["input", "is_dataset"]
_NO_INPUTS = pa.table({"input": pa.array([], pa.string()), "is_dataset": pa.array([], pa.bool_())})
_OF_READS = ["did", "site", "cache", "accessed_at", "known_at"]
KEPT_S = _PATIENCE_S + (LOOKS_BACK + 4) * DAY_S  # so long, and while entries are valid, answers are judged


class SiteNames(NamedTuple):
    """What marks a read as one of a site: `called`, patterns of its names, and its `caches`."""

    called: Sequence[str]
    caches: Sequence[str]

    def has(self, reads: pa.Table) -> pa.ChunkedArray:
        """Whether each of `reads` was at the site; one of unknown place may have been."""
        names = [
            name
            for name in pc.unique(reads["site"]).drop_null().to_pylist()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.called)
        ]
        is_named = pc.is_in(reads["site"], value_set=pa.array(names, pa.string()))
        is_served = pc.is_in(reads["cache"], value_set=pa.array(self.caches, pa.string()))
        is_unknown = pc.and_(pc.is_null(reads["site"]), pc.is_null(reads["cache"]))
        return pc.or_(pc.or_(is_named, is_served), is_unknown)


class _Claims:
    """The inputs that answers name, each once: from `at_s` to `until_s`, and its least `missed`."""

    def __init__(self) -> None:
        self.inputs = _NO_INPUTS
        self.names: pa.Array = _names_of(_NO_INPUTS)
        self.at_s: IntArray = np.zeros(0, np.int64)
        self.until_s: IntArray = np.zeros(0, np.int64)
        self.missed: FloatArray = np.zeros(0)

    def add(self, rows: pa.Table, at_s: int) -> None:
        """Add an answer at `at_s`, which is later than those before it."""
        inputs = inputs_of(rows, at_s)
        names = _names_of(inputs)
        item = pc.index_in(names, value_set=self.names).fill_null(-1).to_numpy().astype(np.int64)
        is_new = item < 0
        n_new = int(is_new.sum())
        item[is_new] = np.arange(len(self.names), len(self.names) + n_new)
        self.names = pa.concat_arrays([self.names, names.filter(pa.array(is_new))])
        self.inputs = pa.concat_tables([self.inputs, inputs.select(_INPUT).filter(pa.array(is_new))])
        self.at_s = np.append(self.at_s, np.full(n_new, at_s))
        self.until_s = np.append(self.until_s, np.zeros(n_new, np.int64))
        self.missed = np.append(self.missed, np.zeros(n_new))
        self.until_s[item] = np.maximum(self.until_s[item], inputs["expires_s"].to_numpy())
        self.missed[item] = np.minimum(self.missed[item], inputs["missed"].to_numpy())

    def until(self, names: pa.Array) -> IntArray:
        """Until when each of `names` is claimed; 0: it is not."""
        place = pc.index_in(names, value_set=self.names).fill_null(len(self.names)).to_numpy()
        until_s: IntArray = np.append(self.until_s, 0)[place]
        return until_s


class _Judge:
    """Compares what a queue answered by `as_of_s` with the reads, at each of `sites`; None: at any."""

    def __init__(self, tables: Tables, queue: str, sites: Mapping[str, SiteNames], as_of_s: int) -> None:
        self._tables, self._queues = tables, tables.head(QUEUE)
        self._sites, self._as_of_s = sites, as_of_s
        known = (key for key in sorted(self._queues.partitions) if parse_as_of(key[1]) <= as_of_s)
        self._keys = [key for key in known if key[2] == queue]
        if self._keys and not self._queues.partitions[self._keys[-1]].n_rows:
            self._keys.pop()  # a broker may stumble; a second such answer withdraws its work
        self._claims = dict[tuple[str, str | None], _Claims]()
        self.days = sorted({key[0] for key in self._keys})

    def row(self, day: str) -> dict[str, object] | None:
        """What was claimed on a day, and what of it was read; None: of no site of it any read is known."""
        files = known_files(self._tables, self._as_of_s)
        judged = [self._judged(files, day, site) for site in (None, *self._sites)]
        known = [part for part in judged if part is not None]
        if len(known) < len(judged) and not any(len(sure) for sure, _ in known):
            return None
        sure, after_s = (np.concatenate(column) for column in zip(*known, strict=True))
        is_read = ~np.isnan(after_s)
        return {
            "files": sure.size,
            "read_files": int(is_read.sum()),
            "claimed": float((sure**2).sum()),
            "kept": float(sure[is_read].sum()),
            "read_after_s": float(np.median(after_s[is_read])) if is_read.any() else None,
            "judged_at": dt.datetime.fromtimestamp(self._as_of_s, dt.UTC),
        }

    def _judged(self, files: pa.Table, day: str, site: str | None) -> tuple[FloatArray, FloatArray] | None:
        """The chance claimed for each file that does not wait, and the time until it was read; NaN: never."""
        claims = self._of_day(day, site)
        last_s, waits = self._waits(day, site)
        file, entry = files_named(files, claims.inputs)
        at_s, until_s = np.full(files.num_rows, np.iinfo(np.int64).max), np.zeros(files.num_rows, np.int64)
        missed, is_waiting = np.zeros(files.num_rows), np.zeros(files.num_rows, np.bool_)
        np.minimum.at(at_s, file, claims.at_s[entry])
        np.maximum.at(until_s, file, last_s[entry])
        np.add.at(missed, file, claims.missed[entry])
        np.logical_or.at(is_waiting, file, waits[entry])
        named: IntArray = np.flatnonzero(missed < 0)
        dids = files["did"].take(pa.array(named)).combine_chunks()
        first_s = self._first_reads(dids, at_s[named], np.minimum(until_s[named], self._as_of_s), site)
        if first_s is None:
            return None
        after_s = np.where(np.isinf(first_s), np.nan, first_s - at_s[named])
        counts = ~np.isnan(after_s) | ~is_waiting[named]
        return -np.expm1(missed[named])[counts], after_s[counts]

    def _waits(self, day: str, site: str | None) -> tuple[IntArray, BoolArray]:
        """Until when what was claimed on `day` was claimed at last, and whether it is not to be judged yet.

        It waits if each day since has named it, and the newest answer does; or if it was named until so
        lately that its reads are not known. Not once it was put off, or named anew, for `_PATIENCE_S`.
        """
        claims = self._of_day(day, site)
        last_s, is_named = claims.until_s.copy(), np.ones(len(claims.names), np.bool_)
        for later in (other for other in self.days if other > day):
            until_s = self._of_day(later, site).until(claims.names)
            is_named &= until_s > 0
            last_s = np.where(is_named, np.maximum(last_s, until_s), last_s)
        stands = is_named & (self._read(self._keys[-1:], site).until(claims.names) > self._as_of_s)
        waits: BoolArray = stands | ((last_s > claims.until_s) & (last_s > self._as_of_s - _LATE_S))
        promised_s = claims.until_s
        long_ago = day_label(parse_as_of(day) - _PATIENCE_S)
        before = [other for other in self.days if other <= long_ago][-1:]
        if before and waits.any():
            then_s = self._of_day(before[0], site).until(claims.names)
            promised_s = np.where(then_s > 0, np.minimum(then_s, promised_s), promised_s)
        return last_s, waits & (last_s - promised_s < _PATIENCE_S)

    def _of_day(self, day: str, site: str | None) -> _Claims:
        if (day, site) not in self._claims:
            self._claims[day, site] = self._read([key for key in self._keys if key[0] == day], site)
        return self._claims[day, site]

    def _read(self, keys: Sequence[Key], site: str | None) -> _Claims:
        claims = _Claims()
        for key in keys:
            rows = self._queues.rows_of([key])
            if self._sites:
                rows = rows.filter(pc.is_null(rows["site"]) if site is None else pc.equal(rows["site"], site))
            claims.add(rows, parse_as_of(key[1]))
        return claims

    def _first_reads(
        self, dids: pa.Array, from_s: IntArray, until_s: IntArray, site: str | None
    ) -> FloatArray | None:
        """The first read of each of `dids` in its time at `site`; inf: none; None: none there is known."""
        first_s, is_known = np.full(len(dids), np.inf), False
        places = [place for name, place in self._sites.items() if site in (None, name)]
        if not len(dids):
            return first_s
        for day_s in range(int(from_s.min()) // DAY_S * DAY_S, int(until_s.max()), DAY_S):
            day = day_label(day_s)
            rows = self._tables.read_arrow(ACCESSES, since=day, until=day, columns=_OF_READS)
            rows = rows.filter(pc.less_equal(rows["known_at"], at(self._as_of_s)))
            if places:
                rows = rows.filter(functools.reduce(pc.or_, (place.has(rows) for place in places)))
            is_known |= rows.num_rows > 0
            place = pc.index_in(rows["did"], value_set=dids)
            item = place.drop_null().to_numpy()
            read_s = rows["accessed_at"].filter(place.is_valid()).cast(pa.int64()).to_numpy() // 1_000_000
            in_time = (read_s >= from_s[item]) & (read_s < until_s[item])
            np.minimum.at(first_s, item[in_time], read_s[in_time])
        return first_s if is_known else None


def judge(tables: Tables, queue: str, *, as_of_s: int, stale_s: int, sites: Mapping[str, SiteNames]) -> None:
    """Count what `queue` announced on the days whose entries have run out by `as_of_s`, and what was read.

    A day is judged once, by the reads known then, without what still waits. What is announced at one of
    `sites` must be read there; what is announced at others is not judged. Where no read is known, nobody is.
    """
    reads, asked = tables.head(ACCESSES), _Judge(tables, queue, sites, as_of_s)
    last_s = (as_of_s - stale_s - _LATE_S) // DAY_S * DAY_S - DAY_S
    done = {key[0] for key in tables.head(ANNOUNCED).partitions if key[1] == queue}
    for day_s in range(last_s - (LOOKS_BACK - 1) * DAY_S, last_s + 1, DAY_S):
        day, until = day_label(day_s), day_label(day_s + stale_s)
        is_known = any(part.n_rows for part in reads.select(since=day, until=until).values())
        is_due = day in asked.days and is_known and day not in done and tables.exists(FILES)
        if is_due and (row := asked.row(day)) is not None:
            tables.replace_rows(ANNOUNCED, [row], (day, queue))


def _names_of(inputs: pa.Table) -> pa.Array:
    kinds = inputs["is_dataset"].cast(pa.string())
    return pc.binary_join_element_wise(inputs["input"], kinds, "\n").combine_chunks()
