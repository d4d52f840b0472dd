"""The decisions about a region's models, as `promote` recorded them; MLflow is not asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pydantic

from features.common.errors import InputError, StaleInputError
from features.common.times import day_label, parse_as_of
from features.results import PROMOTIONS, STEWARD
from jobs.ground.store.tables import Tables
from jobs.loop.trainings import checked_version, foreign_decision
from models.evaluation.promotion import RivalComparison

_ACTIONS: Final = ("promote", "refuse", "rollback")
_COMPARISONS: Final = pydantic.TypeAdapter(tuple[RivalComparison, ...])


@dataclasses.dataclass(frozen=True)
class Promotion:
    """One decision, a row of the table promotions.

    `action` and `reasons` are about plans, `may_evict` and `order_reasons` about the order of eviction.
    `champion`, `steward`: the versions whose plans and whose order serve from then on; None: there is none;
    each with the digest of the files that were promoted, by which alone it may act.
    `trained_until`: nothing known later was used to train `model_version`; None: it did not win.
    """

    action: str
    decided_at: str
    model_version: str
    champion: str | None
    evaluated_as_of: str | None
    reasons: tuple[str, ...]
    comparisons: tuple[RivalComparison, ...]
    may_evict: bool | None = None
    steward: str | None = None
    order_reasons: tuple[str, ...] = ()
    trained_until: str | None = None
    champion_digest: str | None = None
    steward_digest: str | None = None


def last_decision(tables: Tables, *, region: str) -> Promotion:
    """The newest decision about the region. Raises StaleInputError if there was none."""
    found = decisions(tables, region=region)
    if not found:
        raise StaleInputError(
            f"nothing was decided about region {region!r} yet; run `cachecast evaluate --from DAY`, then "
            "`cachecast promote`"
        )
    return found[-1]


def decisions(tables: Tables, *, region: str) -> list[Promotion]:
    """Every decision about the region, the oldest first. Raises ServiceError for one not of `promote`."""
    if not tables.exists(PROMOTIONS):
        return []
    rows = tables.read_arrow(PROMOTIONS, owner=region).to_pylist()
    return [_decision(row) for row in sorted(rows, key=lambda row: str(row["as_of"]))]


def _decision(row: Mapping[str, Any]) -> Promotion:
    if row["action"] not in _ACTIONS:
        raise foreign_decision(f"the action of {row['as_of']}")
    try:
        for name in ("model_version", "champion", "steward"):
            if row[name] is not None:
                checked_version(row[name])
        for at in (row["as_of"], row["evaluated_as_of"], row["trained_until"]):
            parse_as_of(at or row["as_of"])
        comparisons = _COMPARISONS.validate_json(row["comparisons"])
    except (InputError, pydantic.ValidationError):
        raise foreign_decision(f"the row of {row['as_of']}") from None
    return Promotion(
        action=row["action"],
        decided_at=row["as_of"],
        model_version=row["model_version"],
        champion=row["champion"],
        evaluated_as_of=row["evaluated_as_of"],
        reasons=tuple(row["reasons"]),
        comparisons=comparisons,
        may_evict=row["may_evict"],
        steward=row["steward"],
        order_reasons=tuple(row["order_reasons"]),
        trained_until=row["trained_until"] or None,
        champion_digest=row["champion_digest"],
        steward_digest=row["steward_digest"],
    )


@dataclasses.dataclass(frozen=True)
class Serving:
    """A region's last decision, and those that made its champion and the order that may evict."""

    last: Promotion
    champion_by: Promotion | None
    steward_by: Promotion | None


def serving(tables: Tables, *, region: str) -> Serving | None:
    """The decisions by which models serve in a region; None if nothing was decided yet."""
    newest_first = decisions(tables, region=region)[::-1]
    if not newest_first:
        return None
    last = newest_first[0]
    promoted = (one for one in newest_first if one.action == "promote")
    may_evict = (one for one in newest_first if one.may_evict)
    return Serving(
        last,
        next((one for one in promoted if one.model_version == last.champion), None),
        next((one for one in may_evict if one.model_version == last.steward), None),
    )


class Versions(NamedTuple):
    """The versions whose plans and whose order of eviction serve."""

    champion: str | None
    steward: str | None


NO_VERSIONS = Versions(None, None)


def served_versions(decisions: Sequence[Promotion]) -> list[Versions]:
    """What served in order, without what was undone. A decision that promotes nothing changes nothing.

    Raises ServiceError for a rollback of nothing.
    """
    found: list[Versions] = []
    for one in decisions:
        if one.action == "rollback":
            if not found:
                raise foreign_decision(f"the rollback of {one.decided_at}, before which nothing served")
            found.pop()
            continue
        last = found[-1] if found else NO_VERSIONS
        champion = one.model_version if one.action == "promote" else last.champion
        steward = one.model_version if one.may_evict else last.steward
        if (champion, steward) != last:
            found.append(Versions(champion, steward))
    return found


def newest_of(served: Sequence[Versions]) -> Versions:
    """The last of `served`; neither champion nor steward if there was none."""
    return served[-1] if served else NO_VERSIONS


def digests_of(earlier: Sequence[Promotion]) -> dict[str | None, str | None]:
    """The digests of the files of versions, by what decisions recorded; the first that did counts."""
    digests: dict[str | None, str | None] = {}
    for one in earlier:
        for version, digest in ((one.champion, one.champion_digest), (one.steward, one.steward_digest)):
            if digest is not None:
                digests.setdefault(version, digest)
    return digests


def judged_at(earlier: Sequence[Promotion], steward: str | None) -> set[float]:
    """The capacity fractions at which the order of `steward` won when a decision last let it evict."""
    won = [one for one in earlier if one.may_evict and one.model_version == steward]
    return {one.capacity_fraction for last in won[-1:] for one in last.comparisons if one.policy == STEWARD}


def after_last(tables: Tables, region: str, now_s: int) -> int:
    """`now_s`, or a second after the last decision if that is later: no two decisions have the same time."""
    decided = [key[1] for key in tables.newest(PROMOTIONS, owner=region).partitions]
    return max([now_s, *(1 + parse_as_of(at) for at in decided)])


def keep_decision(tables: Tables, promotion: Promotion, region: str) -> None:
    """Write a decision as the row of its time into the table promotions."""
    at = parse_as_of(promotion.decided_at)
    row = dataclasses.asdict(promotion) | {
        "comparisons": json.dumps([dataclasses.asdict(one) for one in promotion.comparisons])
    }
    tables.replace_rows(PROMOTIONS, [row], (day_label(at), promotion.decided_at, region))
