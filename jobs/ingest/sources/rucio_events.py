"""What Rucio's event types mean, as its traces and the daily roll-up of them tell."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_READS = ("get", "get_sm", "sm_get", "get_sm_a", "sm_get_a", "download")
_JOBS = ("get_sm", "sm_get")
_NOBODY = "(?i)robot|pilot|prod|ddmadmin|^root$"


def not_a_read(kind: Column) -> tuple[Column, Column]:
    """The check that refuses an event of type `kind` that reads nothing, and its words."""
    return ~kind.isin(*_READS), bounded("not a read: ", kind, "^[a-z_]{1,20}$")


def activity(kind: Column, who: Column) -> Column:
    """`analysis` of an analysis job (`_a`), or of a get or download by no robot; else production."""
    by_a_person = ~kind.isin(*_JOBS) & F.coalesce(~who.rlike(_NOBODY), F.lit(False))
    return F.when(kind.endswith("_a") | by_a_person, "analysis").otherwise("production")


def bounded(words: str, value: Column, form: str) -> Column:
    """`words` and `value`; a value of another form than `form` is `other`, so that reasons stay few."""
    return F.concat(F.lit(words), F.when(value.rlike(form), value).otherwise("other"))
