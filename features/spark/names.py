"""`features.names` as a Spark expression: the same rules, no Python on records."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from features.names import MAX_NAME_CHARS, RULES, UNFIT, NameParts, Rule


def name_parts(name: Column) -> Column:
    """An array of the strings in `NameParts`, in its order; take them with `part`.

    Equal to `features.names.parse_name`. Null for a null name, nulls for a name of no known form. An
    array, as Spark would run the rules once for each field of a struct.
    """
    nothing = F.array(*(F.lit(None).cast("string") for _ in NameParts._fields))
    parts = F.when(name.isNull(), F.lit(None).cast("array<string>"))
    parts = parts.when((F.char_length(name) > MAX_NAME_CHARS) | name.rlike(UNFIT), nothing)
    for rule in RULES:
        parts = parts.when(name.rlike(rule.pattern), _parts_of(rule, name))
    return parts.otherwise(nothing)


def part(parts: Column, field: str) -> Column:
    """Field `field` of `NameParts` out of what `name_parts` gave."""
    return F.get(parts, NameParts._fields.index(field))


def _parts_of(rule: Rule, name: Column) -> Column:
    pieces = [F.lit(p) if isinstance(p, str) else _group(rule, name, p) for p in rule.dataset]
    parts = {
        "experiment": F.lit(rule.experiment),
        "dataset": F.concat(*pieces) if pieces else F.lit(""),
        "tier": _group(rule, name, rule.tier),
        "campaign": _group(rule, name, rule.campaign),
    }
    return F.array(*(F.nullif(parts[field], F.lit("")) for field in NameParts._fields))


def _group(rule: Rule, name: Column, number: int) -> Column:
    return F.regexp_extract(name, rule.pattern, number) if number else F.lit("")
