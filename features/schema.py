"""Tables of data, independent of the engine: names, types, keys and partitions.

Types: `string`, `long`, `double`, `float`, `bool`, `timestamp` (µs, UTC), `bytes`, `strings` (a list).
A `did` is `scope:name`, the key of a file, or of a dataset where a source only knows datasets.
`arrow_schema` gives a table's schema in Arrow.
"""

import dataclasses
from collections.abc import Collection

import pyarrow as pa

_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "strings": pa.list_(pa.string()),
    "bytes": pa.binary(),
}
_CODES = pa.dictionary(pa.int32(), pa.string())


@dataclasses.dataclass(frozen=True)
class Column:
    """One column. `kind`: a type named in the module's docstring; `required`: never null."""

    name: str
    kind: str
    doc: str
    required: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table. `key` is unique within a partition; a partition is always replaced as a whole.

    `partition` names its columns, `day` first: a `day` (`2026-03-01`), an `as_of` (`2026-03-01T04:00:00Z`),
    a `region`, a `cache` or a `queue`, all strings, none among `columns`. So writers of different
    regions or caches never write to the same partition. `dated_by`: the times of which the first that is
    known has the UTC day that is a row's partition; empty: none.
    """

    name: str
    grain: str
    key: tuple[str, ...]
    partition: tuple[str, ...]
    columns: tuple[Column, ...]
    dated_by: tuple[str, ...] = ()

    @property
    def column_names(self) -> list[str]:
        """Names of the columns stored in the files, in order."""
        return [column.name for column in self.columns]


def arrow_schema(table: Table, coded: Collection[str] = ()) -> pa.Schema:
    """The Arrow schema of `table`'s stored columns (without partition columns); texts `coded` as codes."""
    kinds = [_CODES if c.kind == "string" and c.name in coded else _ARROW[c.kind] for c in table.columns]
    named = zip(table.columns, kinds, strict=True)
    return pa.schema([pa.field(c.name, kind, nullable=not c.required) for c, kind in named])


ACCESSES = Table(
    name="accesses",
    grain="one read of one file by one client; `n_reads` where a source merges several",
    key=("event_id",),
    partition=("day",),
    columns=(
        Column("did", "string", "scope:name", required=True),
        Column("scope", "string", "Rucio scope; the experiment where a source has none", required=True),
        Column("name", "string", "LFN, or file or dataset name", required=True),
        Column("dataset", "string", "did of the dataset, where known"),
        Column("tier", "string", "data tier, for example AOD or MINIAODSIM"),
        Column("campaign", "string", "production campaign or era"),
        Column("experiment", "string", "cms, atlas, lhcb, osdf"),
        Column("site", "string", "where the reading job ran"),
        Column("cache", "string", "cache that served it, where known"),
        Column("accessed_at", "timestamp", "start of the read", required=True),
        Column("closed_at", "timestamp", "end of the read"),
        Column("known_at", "timestamp", "when a source first published it, open or closed", required=True),
        Column("size_bytes", "long", "size of the file"),
        Column("read_bytes", "long", "bytes the client read"),
        Column("bytes_hit", "long", "read and not fetched for this read"),
        Column("bytes_missed", "long", "fetched from the origin, read or not; null: unknown"),
        Column("disk_bytes", "long", "bytes of the file on the cache's disk, when the cache recorded this"),
        Column("disk_accesses", "long", "its accesses since it came to that disk, as recorded then"),
        Column("bypassed_bytes", "long", "fetched past the disk, where bytes_missed follows from disk_bytes"),
        Column("n_reads", "long", "reads merged in this row, at least 1", required=True),
        Column("wall_s", "double", "wall seconds of the read"),
        Column("origin", "string", "host:port or RSE the data came from"),
        Column("user", "string", "salted hash of the user"),
        Column("task", "string", "task or job group"),
        Column("job", "string", "id of the job, as in job_records"),
        Column("activity", "string", "analysis or production"),
        Column("source", "string", "reader that made the row", required=True),
        Column("event_id", "string", "unique per event; duplicates drop by it", required=True),
    ),
    dated_by=("accessed_at",),
)

UNPAIRED = Table(
    name="unpaired",
    grain="an open for writing, or a close, whose other half may be in another pull of its f-stream",
    key=("event_id", "is_open"),
    partition=("day",),
    columns=(
        *(dataclasses.replace(column, required=False) for column in ACCESSES.columns),
        Column("is_open", "bool", "an open, as an access; else a close: event_id, accessed_at, bytes"),
        Column("vector_bytes", "long", "bytes that the client read in vectors, beside read_bytes"),
        Column("written_bytes", "long", "bytes that the client wrote"),
    ),
    dated_by=("accessed_at",),
)
"""What of an f-stream is no access, and decides later whether something is."""

FILES = Table(
    name="files",
    grain="one file: when it became known, and its latest facts",
    key=("did",),
    partition=(),
    columns=(
        Column("did", "string", "scope:name", required=True),
        Column("scope", "string", "Rucio scope", required=True),
        Column("name", "string", "LFN or file name", required=True),
        Column("dataset", "string", "did of the dataset"),
        Column("tier", "string", "data tier"),
        Column("campaign", "string", "production campaign or era"),
        Column("experiment", "string", "cms, atlas, lhcb, osdf"),
        Column("size_bytes", "long", "size of the file", required=True),
        Column("adler32", "string", "checksum, 8 hex digits"),
        Column("created_at", "timestamp", "when the file was created"),
        Column("origins", "strings", "RSEs or hosts that have it"),
        Column("locked", "strings", "those of them whose replica a rule keeps; null: not stated"),
        Column("known_at", "timestamp", "when a source first published the file", required=True),
        Column("updated_at", "timestamp", "when these facts were published; null: at known_at"),
    ),
)

CONTENTS = Table(
    name="contents",
    grain="one file in one cache's inventory at `scanned_at`",
    key=("did",),
    partition=("day", "as_of", "cache"),
    columns=(
        Column("did", "string", "scope:name", required=True),
        Column("name", "string", "path in the cache", required=True),
        Column("size_bytes", "long", "size of the whole file", required=True),
        Column("bytes_on_disk", "long", "bytes of the blocks on disk", required=True),
        Column("complete", "bool", "every block is on disk", required=True),
        Column("last_detach", "timestamp", "end of the last access"),
        Column("open", "bool", "a client holds it open", required=True),
        Column("scanned_at", "timestamp", "when the inventory was taken", required=True),
    ),
)

STATES = Table(
    name="states",
    grain="(kind, entity, region, as_of): what features remember of past reads, carried from cycle to cycle",
    key=("kind", "entity"),
    partition=("day", "as_of", "region"),
    columns=(
        Column("kind", "string", "file or dataset", required=True),
        Column("entity", "string", "did; of a file that is its own dataset with a line break", required=True),
        Column("dataset", "string", "entity of the file's dataset"),
        Column("tier", "string", "data tier of the file"),
        Column("campaign", "string", "production campaign or era of the file"),
        Column("size_bytes", "long", "size of the file"),
        Column("tier_s", "long", "decision time from which a read's tier counts, s since 1970"),
        Column("campaign_s", "long", "the same of the campaign"),
        Column("size_bytes_s", "long", "the same of the size"),
        Column("last_read_s", "double", "last read of the dataset, s since 1970", required=True),
        Column("numbers", "bytes", "doubles in memory's order; see features.stream.state", required=True),
    ),
)

DORMANT = dataclasses.replace(
    STATES,
    name="dormant",
    grain="(kind, entity, region, as_of): states of datasets that had become too old for candidates at as_of",
)

CONSUMED = Table(
    name="consumed",
    grain="one day of accesses, as far as a state has counted it, or dormant datasets that belong to it",
    key=("table", "part"),
    partition=("day", "as_of", "region"),
    columns=(
        Column("table", "string", "accesses or dormant", required=True),
        Column("part", "string", "day of accesses, or as_of of dormant", required=True),
        Column("digest", "string", "digest of its rows at as_of", required=True),
        Column("n_known", "long", "its rows that are counted: with known_at before as_of", required=True),
        Column("n_rows", "long", "its rows, of accesses those of demand", required=True),
        Column("content", "long", "sum of hashes of its counted rows; 0 of dormant", required=True),
        Column("made_by", "string", "digest of the settings that states depend on", required=True),
    ),
)

PREDICTIONS = Table(
    name="predictions",
    grain="(file, region, as_of, horizon)",
    key=("did", "horizon_s"),
    partition=("day", "as_of", "region"),
    columns=(
        Column("did", "string", "scope:name", required=True),
        Column("horizon_s", "long", "seconds after as_of", required=True),
        Column("probability", "double", "calibrated probability of a read within the horizon", required=True),
        Column("expected_accesses", "double", "expected reads within the horizon", required=True),
        Column("size_bytes", "long", "size of the file"),
        Column("dataset", "string", "did of the dataset"),
        Column("tier", "string", "data tier"),
        Column("last_read_s", "long", "seconds from the last known read to as_of; null: never read"),
        Column("model_version", "string", "MLflow model that made it", required=True),
        Column("model_digest", "string", "sha256 of that model's files"),
    ),
)

PLANS = Table(
    name="plans",
    grain="one item of one cache's plan",
    key=("item_id",),
    partition=("day", "as_of", "cache"),
    columns=(
        Column("item_id", "string", "sha256 of cache, as_of, did and action, 32 hex digits", required=True),
        Column("did", "string", "scope:name", required=True),
        Column("name", "string", "path in the cache", required=True),
        Column("action", "string", "prefetch, pin, unpin or evict", required=True),
        Column("rank", "long", "order per action, 1 first", required=True),
        Column("value", "double", "expected bytes read within the horizon", required=True),
        Column("cost_bytes", "long", "bytes fetched over the WAN for this item", required=True),
        Column("size_bytes", "long", "size of the file", required=True),
        Column("probability", "double", "chance of a read within the horizon"),
        Column("reason", "string", "why, in words", required=True),
        Column("expires_at", "timestamp", "the item is void after this time", required=True),
        Column("model_version", "string", "MLflow model of its predictions; null: none, a prefill"),
        Column("model_digest", "string", "as in predictions"),
        Column("needs_model", "bool", "false: a rule or queued jobs put it here, not a model; null: true"),
        Column("origin", "string", "where a prefetch is to come from; null: not known"),
        Column("queues", "string", "queues that announced reads of it, with commas between; null: none"),
    ),
)

RECEIPTS = Table(
    name="receipts",
    grain="one plan item's latest state",
    key=("item_id",),
    partition=("day", "as_of", "cache"),
    columns=(
        Column("item_id", "string", "as in plans", required=True),
        Column("did", "string", "scope:name", required=True),
        Column("action", "string", "prefetch, pin, unpin or evict", required=True),
        Column("state", "string", "planned, running, done, failed, expired, cancelled …", required=True),
        Column("attempts", "long", "number of tries", required=True),
        Column("bytes", "long", "bytes the cache fetched or freed", required=True),
        Column("seconds", "double", "time the last try took", required=True),
        Column("error", "string", "why the last try failed"),
        Column("confirmed_by", "string", "cinfo, gstream, stat or directory"),
        Column("updated_at", "timestamp", "when the state last changed", required=True),
    ),
)

OUTCOMES = Table(
    name="outcomes",
    grain="reads and bytes saved by one pushed item",
    key=("item_id",),
    partition=("day", "as_of", "cache"),
    columns=(
        Column("item_id", "string", "as in plans", required=True),
        Column("did", "string", "scope:name", required=True),
        Column("action", "string", "prefetch or pin", required=True),
        Column("n_hits", "long", "reads served from the cache after the push", required=True),
        Column("bytes_saved", "long", "bytes of those reads that were not fetched", required=True),
        Column("bytes_spent", "long", "bytes fetched for the item by the push", required=True),
        Column("bytes_wasted", "long", "bytes spent on an unread item", required=True),
        Column("first_hit_delay_s", "double", "from the receipt to the first hit"),
        Column("use", "string", "read, pending (not read yet) or unread; null: by n_hits"),
        Column("expires_at", "timestamp", "as in plans: an item not read by then is unread"),
    ),
)

QUEUE = Table(
    name="queue",
    grain="one input of one queued job, or of a group of equal jobs, as reported by a queue at as_of",
    key=("job_id", "is_dataset", "input", "site"),
    partition=("day", "as_of", "queue"),
    columns=(
        Column("job_id", "string", "id in the batch system", required=True),
        Column("input", "string", "did or name of a file or a dataset", required=True),
        Column("is_dataset", "bool", "whether it is a dataset", required=True),
        Column("n_jobs", "long", "jobs that will read it, at least 1", required=True),
        Column("starts_at", "timestamp", "expected start of the first; null: as soon as possible"),
        Column("known_at", "timestamp", "when the job was queued; not used before", required=True),
        Column("expires_at", "timestamp", "not used from this time on", required=True),
        Column("site", "string", "site whose caches the jobs use; null: any of the region"),
        Column("cache", "string", "cache requested for it; null: any"),
        Column("work", "string", "name of the work in every queue that knows of it; null: this one alone"),
        Column("certainty", "double", "that it will be read there, up to 1; null: unknown, taken for 1"),
    ),
)
"""Inputs of queued jobs. The latest as_of of each queue counts; a job missing from it has begun."""

PULLS = Table(
    name="pulls",
    grain="one input that was pulled, with its size and time of change then",
    key=("source", "input"),
    partition=(),
    columns=(
        Column("source", "string", "reader", required=True),
        Column("input", "string", "path of the file", required=True),
        Column("size_bytes", "long", "its size", required=True),
        Column("modified_at", "timestamp", "when it was last written", required=True),
    ),
)

REJECTS = Table(
    name="rejects",
    grain="rows of one input that were refused for one reason",
    key=("source", "input", "reason"),
    partition=("day",),
    columns=(
        Column("source", "string", "reader", required=True),
        Column("input", "string", "file the rows came from", required=True),
        Column("reason", "string", "why; equal faults have equal texts", required=True),
        Column("n_rows", "long", "rows refused", required=True),
        Column("sample", "string", "the first of them, cut to 200 characters"),
    ),
)


JOB_RECORDS = Table(
    name="job_records",
    grain="one job that ran and ended, as its batch or workload system reports it",
    key=("event_id",),
    partition=("day",),
    columns=(
        Column("job", "string", "id in its system; of a CRAB job a salted hash, for it names the user"),
        Column("task", "string", "group of jobs of one origin: the task, workflow or cluster", required=True),
        Column("kind", "string", "kind of work, for example Analysis, Processing or evgen"),
        Column("activity", "string", "analysis or production"),
        Column("user", "string", "salted hash of the user"),
        Column("site", "string", "where it ran"),
        Column("node", "string", "worker node"),
        Column("started_at", "timestamp", "start of its first run; what a failed job lacks is null"),
        Column("ended_at", "timestamp", "end"),
        Column("known_at", "timestamp", "its end, else when it was reported", required=True),
        Column("cores", "long", "cores that it held"),
        Column("cpu_s", "double", "CPU seconds of all cores together, of the same runs as `wall_s`"),
        Column("wall_s", "double", "wall seconds"),
        Column("failed", "bool", "it did not end well", required=True),
        Column("exit_code", "long", "why, by its system's codes; 0: well"),
        Column("read_bytes", "long", "bytes that it read, or of its input files"),
        Column("dataset", "string", "name of the input dataset"),
        Column("files", "strings", "names of the input files"),
        Column("source", "string", "reader that made the row", required=True),
        Column("event_id", "string", "unique per job; duplicates drop by it", required=True),
    ),
    dated_by=("started_at", "known_at"),
)
