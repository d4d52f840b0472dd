"""`features.names` as a Spark expression: the same rules, no Python on records."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from features.names import MAX_NAME_CHARS, RULES, UNFIT, NameParts, Rule

# No name has one: it is unfit.
_BETWEEN = "\x1f"
# What nearly every name is made of: told faster than that a name holds nothing unfit.
_PLAIN = "^[ -~]*\\z"


def name_parts(name: Column) -> Column:
    """The strings in `NameParts`, in its order, as one text: make it a column of its own, and take them with
    `part`, which gives what `features.names.parse_name` does. Null for a null name.

    One text, as Spark would run the rules once for each field of a struct, and an array costs more.
    """
    nothing = F.lit(_BETWEEN * (len(NameParts._fields) - 1))
    unfit = (F.char_length(name) > MAX_NAME_CHARS) | (~name.rlike(_PLAIN) & name.rlike(UNFIT))
    told = F.when(name.isNull(), F.lit(None).cast("string")).when(unfit, nothing)
    for rule in RULES:
        # A pattern covers the whole name, so replacing what it matches leaves the parts alone.
        told = told.when(_fits(rule, name), F.regexp_replace(name, rule.pattern, _parts_of(rule)))
    return told.otherwise(nothing)


def part(parts: Column, field: str) -> Column:
    """Field `field` of `NameParts` out of what `name_parts` gave; null where the name does not tell."""
    up_to = F.substring_index(parts, _BETWEEN, NameParts._fields.index(field) + 1)
    return F.nullif(F.substring_index(up_to, _BETWEEN, -1), F.lit(""))


def _fits(rule: Rule, name: Column) -> Column:
    matches = name.rlike(rule.pattern)
    return name.contains(rule.holds) & matches if rule.holds else matches


def _parts_of(rule: Rule) -> str:
    """What a name of `rule` is replaced by: its parts, each by the groups it is made of."""
    parts = {
        "experiment": rule.experiment,
        "dataset": "".join(p if isinstance(p, str) else f"${p}" for p in rule.dataset),
        "tier": f"${rule.tier}" if rule.tier else "",
        "campaign": f"${rule.campaign}" if rule.campaign else "",
    }
    return _BETWEEN.join(parts[field] for field in NameParts._fields)
