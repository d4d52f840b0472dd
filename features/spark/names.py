"""`features.names` as a Spark expression: the same rules, without Python per record."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from features.names import MAX_NAME_CHARS, RULES, UNFIT, NameParts, Rule

# A separator: no name contains it, because it is a control character.
_BETWEEN = "\x1f"
# Matches nearly all names, faster than the search for unfit characters.
_PLAIN = "^[ -~]*\\z"


def name_parts(name: Column) -> Column:
    """The fields of `NameParts` in order, as one text; null for a null name.

    Make it a column of its own, and get the fields with `part`; they equal those of `parse_name`. It is one
    text because Spark would run the rules once per field of a struct, and an array is slower.
    """
    no_parts = F.lit(_BETWEEN * (len(NameParts._fields) - 1))
    unfit = (F.char_length(name) > MAX_NAME_CHARS) | (~name.rlike(_PLAIN) & name.rlike(UNFIT))
    parts = F.when(name.isNull(), F.lit(None).cast("string")).when(unfit, no_parts)
    for rule in RULES:
        # A pattern matches the whole name, so the replacement leaves only the parts.
        parts = parts.when(_fits(rule, name), F.regexp_replace(name, rule.pattern, _parts_of(rule)))
    return parts.otherwise(no_parts)


def part(parts: Column, field: str) -> Column:
    """Field `field` of `NameParts` from the text of `name_parts`; null if the name does not contain it."""
    up_to = F.substring_index(parts, _BETWEEN, NameParts._fields.index(field) + 1)
    return F.nullif(F.substring_index(up_to, _BETWEEN, -1), F.lit(""))


def _fits(rule: Rule, name: Column) -> Column:
    matches = name.rlike(rule.pattern)
    return name.contains(rule.holds) & matches if rule.holds else matches


def _parts_of(rule: Rule) -> str:
    """The replacement for a name of `rule`: its parts, made of groups of the pattern."""
    parts = {
        "experiment": rule.experiment,
        "dataset": "".join(p if isinstance(p, str) else f"${p}" for p in rule.dataset),
        "tier": f"${rule.tier}" if rule.tier else "",
        "campaign": f"${rule.campaign}" if rule.campaign else "",
    }
    return _BETWEEN.join(parts[field] for field in NameParts._fields)
