"""`features.common.names` as a DuckDB expression: the same rules, without Python per record."""

from __future__ import annotations

import re

from features.common.names import MAX_NAME_CHARS, RULES, UNFIT, NameParts, Rule

# A separator: no name contains it, because it is a control character.
_BETWEEN = "\x1f"
# Matches nearly all names, faster than the search for unfit characters.
_PLAIN = "^[ -~]*$"
_UNFIT = re.sub(r"\\u([0-9a-f]{4})", r"\\x{\1}", UNFIT)


def literal(text: str) -> str:
    """`text` as an SQL literal."""
    quoted = text.replace("'", "''").split("\0")
    return "('" + "' || chr(0) || '".join(quoted) + "')" if len(quoted) > 1 else f"'{quoted[0]}'"


def name_parts(name: str) -> str:
    """The fields of `NameParts` of the column `name`, in order, as a list of texts; null for a null name.

    Make it a column of its own, and get the fields with `part`; they equal those of `parse_name`.
    """
    unfit = (
        f"length({name}) > {MAX_NAME_CHARS} OR "
        f"(NOT regexp_matches({name}, '{_PLAIN}') AND regexp_matches({name}, '{_UNFIT}'))"
    )
    rules = " ".join(f"WHEN {_fits(rule, name)} THEN {_parts_of(rule, name)}" for rule in RULES)
    no_parts = literal(_BETWEEN * (len(NameParts._fields) - 1))
    found = f"CASE WHEN {name} IS NULL THEN NULL WHEN {unfit} THEN {no_parts} {rules} ELSE {no_parts} END"
    return f"string_split({found}, {literal(_BETWEEN)})"


def part(parts: str, field: str) -> str:
    """Field `field` of `NameParts` from the list of `name_parts`; null if the name does not contain it."""
    return f"nullif({parts}[{NameParts._fields.index(field) + 1}], '')"


def _fits(rule: Rule, name: str) -> str:
    matches = f"regexp_matches({name}, {literal(rule.pattern)})"
    return f"contains({name}, {literal(rule.holds)}) AND {matches}" if rule.holds else matches


def _parts_of(rule: Rule, name: str) -> str:
    """The parts of a name of `rule`: its pattern matches the whole name, so only they are left of it."""
    parts = {
        "experiment": rule.experiment,
        "dataset": "".join(p if isinstance(p, str) else f"\\{p}" for p in rule.dataset),
        "tier": f"\\{rule.tier}" if rule.tier else "",
        "campaign": f"\\{rule.campaign}" if rule.campaign else "",
    }
    wanted = literal(_BETWEEN.join(parts[field] for field in NameParts._fields))
    return f"regexp_replace({name}, {literal(rule.pattern)}, {wanted})"
