"""What Rucio's event types mean, as its traces and the daily roll-up of them tell."""

from __future__ import annotations

from jobs.ingest.sources import sql

_READS = ("get", "get_sm", "sm_get", "get_sm_a", "sm_get_a", "download")
_JOBS = ("get_sm", "sm_get")
_NOBODY = "(?i)robot|pilot|prod|ddmadmin|^root$"


def not_a_read(kind: str) -> tuple[str, str]:
    """The check that refuses an event of type `kind` that reads nothing, and its words."""
    return f"NOT {sql.is_one(kind, _READS)}", bounded("not a read: ", kind, "^[a-z_]{1,20}$")


def activity(kind: str, who: str) -> str:
    """`analysis` of an analysis job (`_a`), or of a get or download by no robot; else production."""
    return (
        f"CASE WHEN ends_with({kind}, '_a') THEN 'analysis' WHEN {sql.is_one(kind, _JOBS)} THEN 'production' "
        f"WHEN NOT regexp_matches({who}, '{_NOBODY}') THEN 'analysis' ELSE 'production' END"
    )


def bounded(words: str, value: str, form: str) -> str:
    """`words` and `value`; a value of another form than `form` is `other`, so that reasons stay few."""
    return f"'{words}' || CASE WHEN regexp_matches({value}, '{form}') THEN {value} ELSE 'other' END"
