"""Subscriptions of Rucio: which new datasets meet them, as Rucio's transmogrifier reads their conditions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from features.common import strict_json
from jobs.loop.ingest.queues.place import folded, texts

_SUBSCRIBED = ("active", "new", "updated")
_MATCHED = {"scope", "pattern", "excluded_pattern", "account", "did_type"}
"""Conditions of a subscription that the message of a new dataset can meet; others ask for metadata."""
_MOST_PATTERN_CHARS = 4000


class UnmetError(ValueError):
    """Why no new dataset meets a subscription."""


class Created(NamedTuple):
    """A new DID, as its message names it; `parent`: the container to which it was added."""

    raw: object
    did: tuple[str, str]
    account: str
    did_type: str
    made_s: int | None
    parent: tuple[str, str] | None = None


def met_by(
    fields: Mapping[str, object], created: Sequence[Created]
) -> tuple[list[int], list[tuple[str, ...]]]:
    """The numbers of `created` that meet a subscription, and the RSEs of its rules. Raises UnmetError."""
    try:
        conditions, rules = (
            strict_json.loads(value) if isinstance(value := fields.get(name), str) else value
            for name in ("filter", "replication_rules")
        )
    except ValueError:
        conditions = rules = None
    if not isinstance(conditions, dict) or not isinstance(rules, list):
        raise UnmetError("not a subscription: no filter or no rules")
    if str(fields.get("state")).lower() not in _SUBSCRIBED:
        raise UnmetError("not copied: a subscription that is not active")
    conditions = {name: value for name, value in conditions.items() if name != "split_rule"}
    if not conditions.keys() <= _MATCHED:
        raise UnmetError("not new: a subscription by metadata, which messages lack")
    numbers = _matching(conditions, created)
    if not numbers:
        raise UnmetError("not new: a subscription that no new dataset meets")
    each = (folded(rule) or {} for rule in rules)
    return numbers, [tuple(texts(rule.get("rse_expression"), "|")) for rule in each]


def _matching(conditions: Mapping[str, object], created: Sequence[Created]) -> list[int]:
    columns = {
        "scope": [new.did[0] for new in created],
        "account": [new.account for new in created],
        "did_type": [new.did_type for new in created],
    }
    names = [new.did[1] for new in created]
    is_matched = pa.array([True] * len(created), pa.bool_())
    try:
        for name, value in conditions.items():
            listed = value if isinstance(value, list) else [value]
            if not listed or not all(isinstance(v, str) and len(v) <= _MOST_PATTERN_CHARS for v in listed):
                raise UnmetError(f"not a subscription: {name} is no text")
            column = pa.array(columns.get(name, names), pa.string())
            if name in ("account", "did_type"):
                hits = pc.is_in(column, pa.array(listed, pa.string()))
            else:
                # RE2, for which no pattern takes long.
                pattern = "|".join(f"(?:{part})" for part in listed)
                hits = pc.match_substring_regex(column, f"^(?:{pattern})")
            is_matched = pc.and_(is_matched, pc.invert(hits) if name == "excluded_pattern" else hits)
    except pa.ArrowInvalid:
        raise UnmetError("not a subscription: a pattern that cannot be matched") from None
    return [number for number, is_met in enumerate(is_matched.to_pylist()) if is_met]
