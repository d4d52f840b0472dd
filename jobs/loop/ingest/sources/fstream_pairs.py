"""Opens and closes of an f-stream that come apart: in another order, or in different pulls.

A close ends the access that is there, or takes it back as no read. The table `unpaired` keeps what a later
pull may need: opens for writing, closes without their open, and closes that say that theirs was no read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from features.common.names import literal
from features.common.times import DAY_S, day_label
from features.schema import ACCESSES, UNPAIRED, arrow_schema
from jobs.loop.ingest import merging
from jobs.loop.ingest.sources import sql
from jobs.loop.ingest.sources.workspace import Earlier, Workspace, batches_of, parse
from prefetch.xcache.fstream_capture import LONE_CLOSE

WRITE = "not a read: write"
# An open is looked for in the days before its close that late records re-open.
_LONGEST_OPEN_S = 3 * 86400
# No cache has smaller blocks; a prefetch of ours reads one byte of each by a vector read.
_LEAST_BLOCK_BYTES = 64 * 1024
_ROWS_AT_ONCE = 20_000
_NOTHING = 'coalesce("read", 0) = 0 AND coalesce(readv, 0) = 0'
_NAMES = ", ".join(f'"{name}"' for name in ACCESSES.column_names)
_OF_CLOSES = ("event_id", "accessed_at", "read_bytes", "source")


def no_read(for_writing: str, size_bytes: str) -> list[tuple[str, str]]:
    """The checks that refuse an open by its bytes so far (`read`, `readv`, `written`), and their words."""
    most = f"ceil({size_bytes} / {_LEAST_BLOCK_BYTES}.0)"
    return [
        (f"{_NOTHING} AND ({for_writing} OR written > 0)", literal(WRITE)),
        (f'"read" = 0 AND readv BETWEEN 1 AND {most}', literal(sql.OURS)),
    ]


def impossible(*names: str) -> list[tuple[str, str]]:
    """The checks that refuse impossible numbers of bytes, and their words."""
    return [(f'NOT "{name}" BETWEEN 0 AND {sql.MOST_BYTES}', f"'impossible size: {name}'") for name in names]


def at_close(accessed_at: str) -> dict[str, str]:
    """What the close tells of an access that began at `accessed_at`; null where there is none."""
    return {
        "closed_at": sql.timestamp("closed_us"),
        "read_bytes": sql.total('"read"', "readv"),
        "wall_s": f"(closed_us - epoch_us({accessed_at})) / 1e6",
    }


class Pairs:
    """What comes apart in the rows of one pull, of `schema`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._lone: list[Mapping[str, object]] = []
        self._refusing: list[Mapping[str, object]] = []
        self._writes: list[Mapping[str, object]] = []

    def without_lone(self, rows: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
        """`rows`, but the closes without an open, which `pair` judges."""
        for row in rows:
            if row.get("fault") == LONE_CLOSE:
                self._lone.append(row)
                continue
            yield row
            if row.get("for_writing"):
                if row["closed_us"] is None:
                    self._writes.append(row)
            elif _may_refuse(row):
                self._refusing.append(row)

    def pair(self, space: Workspace, opens: sql.Query, event_id: str, earlier: Earlier) -> None:
        """Add accesses that closes end, retract those that are no reads, leave `space.unpaired`.

        `opens`: how a row is an access whatever its close says; `event_id`: of a row.
        """
        known = self._known(space, earlier)
        if not (self._lone or self._writes or self._refusing or known.num_rows):
            return
        space.keep(known.schema, known.to_batches(), "known")
        for name, rows in (("lone", self._lone), ("refusing", self._refusing)):
            space.keep(self._schema, batches_of(rows, self._schema), name)
        writes = parse(opens, batches_of(self._writes, self._schema), rows=_ROWS_AT_ONCE)
        opened = (pa.Table.from_batches([batch]).filter(pc.field("reason").is_null()) for batch in writes)
        space.put("writes", (), (rows.select(ACCESSES.column_names) for rows in opened))
        space.put("earlier", ACCESSES.partition, self._opened(earlier))
        merging.merge(space, in_two_parts=True, into="opened", old="earlier")
        for statement in _statements(event_id):
            space.database.execute(statement)
        # Closes with what their opens add. What has ended is ended again only by the same close, repeated.
        columns = {name: f'"{name}"' for name in ACCESSES.column_names} | at_close("accessed_at")
        space.parse_kept(sql.Query(ACCESSES, [], columns, reason="why", sample="stated"))
        space.retract(f"SELECT event_id, {merging.day_of(ACCESSES)} FROM raw WHERE why <> '{LONE_CLOSE}'")
        space.unpaired = space.select(_kept(event_id))

    def _known(self, space: Workspace, earlier: Earlier) -> pa.Table:
        """The halves that may belong to the opens and to the lone closes of this pull."""
        (ends,) = space.select(
            "SELECT epoch(min(accessed_at)) AS first, epoch(max(accessed_at)) AS last FROM parsed"
        ).to_pylist()
        opened = [int(end) for end in ends.values() if end is not None] + _seconds(self._writes, "opened_us")
        closed = _seconds(self._lone, "closed_us")
        spans = [(min(opened), max(opened) + _LONGEST_OPEN_S)] if opened else []
        spans += [(min(closed) - _LONGEST_OPEN_S, max(closed))] if closed else []
        halves = [
            rows
            for since, until in spans
            for rows in earlier(day_label(max(0, since - DAY_S)), day_label(until), UNPAIRED)
        ]
        if not halves:
            return arrow_schema(UNPAIRED).empty_table()
        return pa.concat_tables(rows.select(UNPAIRED.column_names) for rows in halves)

    def _opened(self, earlier: Earlier) -> Sequence[pa.Table]:
        closed = _seconds(self._lone, "closed_us")
        if not closed:
            return ()
        return earlier(day_label(max(0, min(closed) - _LONGEST_OPEN_S)), day_label(max(closed)))


def _may_refuse(row: Mapping[str, object]) -> bool:
    """Whether the close of an open for reading may say that it was no read, or cannot be."""
    size, *done = (int(str(row.get(name) or 0)) for name in ("size_bytes", "read", "readv", "written"))
    is_ours = done[0] == 0 and done[1] <= size // _LEAST_BLOCK_BYTES + 1
    return row.get("closed_us") is not None and (is_ours or not all(0 <= n <= sql.MOST_BYTES for n in done))


def _seconds(rows: Iterable[Mapping[str, object]], name: str) -> list[int]:
    """Times of `rows` (µs) in seconds, those that a record can have."""
    seconds = (int(str(row[name])) // 1_000_000 for row in rows)
    return [at_s for at_s in seconds if 0 <= at_s < sql.LATEST_S]


def _statements(event_id: str) -> Iterator[str]:
    """Tables `closes`, `opens` and, of both, `raw`: closes, and what their opens tell if they are there."""
    numbers = 'closed_us, "read", readv, written'
    opened = "SELECT event_id FROM parsed WHERE reason IS NULL UNION ALL SELECT event_id FROM writes"
    closed = f"SELECT {event_id} FROM lone UNION ALL SELECT {event_id} FROM refusing"
    yield (
        f"CREATE TABLE closes AS SELECT {event_id} AS id, input, stated, {numbers}, false AS is_old "
        "FROM lone UNION ALL SELECT event_id, (SELECT min(input) FROM parsed), NULL, epoch_us(accessed_at), "
        "read_bytes, vector_bytes, written_bytes, true "
        "FROM (SELECT DISTINCT ON (event_id) * FROM known WHERE NOT is_open "
        f"AND event_id NOT IN ({closed}) AND event_id IN ({opened}))"
    )
    yield (
        f"CREATE TABLE opens AS SELECT {_NAMES}, 0 AS place FROM opened "
        "WHERE event_id IN (SELECT id FROM closes) "
        f"UNION ALL SELECT {_NAMES}, 1 FROM known WHERE is_open UNION ALL SELECT {_NAMES}, 2 FROM writes"
    )
    why = sql.first_words(
        (f"event_id IS NULL AND {_NOTHING} AND written > 0", literal(WRITE)),
        ("event_id IS NULL OR closed_at <> make_timestamp(closed_us)", literal(LONE_CLOSE)),
        *impossible("read", "readv", "written"),
        *no_read("place > 0", "size_bytes"),
    )
    yield (
        f"CREATE TABLE raw AS SELECT *, {why} AS why FROM closes LEFT JOIN "
        "(FROM opens QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY place) = 1) ON event_id = id "
        "WHERE NOT is_old OR (event_id IS NOT NULL AND closed_at IS NULL)"
    )


def _kept(event_id: str) -> str:
    """The SELECT of this pull's halves, with their day."""
    numbers = '"read" AS read_bytes, readv AS vector_bytes, written AS written_bytes'
    closes = (
        f"SELECT id AS event_id, closed_us, {numbers} FROM raw WHERE NOT is_old AND why IS NOT NULL "
        f"UNION ALL SELECT {event_id}, closed_us, {numbers} FROM refusing"
    )
    empty = ", ".join(f'NULL AS "{name}"' for name in ACCESSES.column_names if name not in _OF_CLOSES)
    return (
        f"SELECT *, {merging.day_of(UNPAIRED)} AS day FROM ("
        "SELECT * EXCLUDE (closed_us), make_timestamp(closed_us) AS accessed_at, 'xrootd_fstream' AS source, "
        f"false AS is_open, {empty} FROM ({closes}) WHERE closed_us BETWEEN 0 AND {sql.LATEST_S * 1_000_000} "
        "UNION ALL BY NAME SELECT *, true AS is_open FROM writes)"
    )
