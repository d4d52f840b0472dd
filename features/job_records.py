"""The table of jobs that have ended: what they computed, waited and read, and how they ended."""

from __future__ import annotations

from features.schema import Column, Table

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
