"""The models of an evaluation, and its record in the table evaluations and the MLflow run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from features.results import BESIDE_A_STEWARD, CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, LRU, STEWARD
from features.times import DAY_S, as_of_label
from jobs.settings.tree import Settings
from jobs.store.keys import MomentKey
from jobs.store.promotions import named
from jobs.store.tables import Tables
from jobs.text import percent
from jobs.train.registry import awaited_registry
from models.evaluation.rivals import Rivals, day_rows
from models.serving.names import CANDIDATE, CHAMPION
from models.serving.scoring import LoadedModels


@dataclasses.dataclass(frozen=True)
class Contest:
    """The candidate that is evaluated, and the champion that it is compared with, if that is possible.

    `candidate` None: the evaluation is not recorded.
    """

    candidate: str | None = None
    champion: LoadedModels | None = None
    notes: tuple[str, ...] = ()


NOBODY = Contest()


def contest(settings: Settings, *, from_s: int) -> Contest:
    """The region's candidate, and its champion unless that was trained on data from `from_s` on.

    Raises ServiceError, ModelError if the champion was trained with other settings.
    """
    region = settings.region.name
    registry = awaited_registry(settings.mlflow)
    candidate = registry.version_at(region, CANDIDATE)
    champion = named(Tables(settings.tables.root), region=region).get(CHAMPION)
    notes = []
    if candidate is None:
        notes.append(f"region {region!r} has no candidate: nothing is recorded; run `cachecast train` first")
    if champion is None or champion.version == candidate:
        return Contest(candidate, None, tuple(notes))
    if (seen_s := registry.until_s(champion.version)) > from_s:
        notes.append(
            f"the champion {champion.version} has seen accesses until {as_of_label(seen_s)}, "
            "so it is no rival here"
        )
        return Contest(candidate, None, tuple(notes))
    served = registry.load_version(champion.version, digest=champion.digest)
    served.bundle.check(spec=settings.features.spec, region=region)
    return Contest(candidate, served.load(), tuple(notes))


def record(settings: Settings, known: Contest, rivals: Sequence[Rivals], *, last_day_s: int) -> None:
    """Write the days into the table evaluations, at the end of `last_day_s`, and the metrics into MLflow."""
    if known.candidate is None:
        return
    scored_by = {CHALLENGER_PLAN: known.candidate}
    if known.champion is not None:
        scored_by[CHAMPION_PLAN] = known.champion.version
    scored_by |= {name: scored_by[of] for name, of in BESIDE_A_STEWARD.items() if of in scored_by}
    end_s = last_day_s + DAY_S
    key = MomentKey.at(end_s, settings.region.name)
    rows = day_rows(rivals, model_version=known.candidate, scored_by=scored_by)
    Tables(settings.tables.root).replace_rows(EVALUATIONS, rows, key)
    registry = awaited_registry(settings.mlflow)
    registry.log(known.candidate, _figures(rivals))
    registry.tag(known.candidate, {"wan_saved": _saved(rivals)})


def _figures(rivals: Sequence[Rivals]) -> dict[str, float]:
    """`walk/lru_challenger/at_10pct/wan_bytes` and the like, and the steward's.

    MLflow takes no plus sign in a name.
    """
    figures = {}
    for at in rivals:
        for policy, one in at.replayed.items():
            if policy == STEWARD:
                continue
            name = f"walk/{policy.replace('+', '_')}/at_{100 * at.capacity_fraction:g}pct"
            figures[f"{name}/wan_bytes"] = float(one.result.wan_bytes)
            figures[f"{name}/byte_hit_ratio"] = one.result.byte_hit_ratio
            if (gap := at.gap_closed(policy)) is not None:
                figures[f"{name}/byte_gap_closed"] = gap.mean
    return figures | _steward_figures(rivals)


def _steward_figures(rivals: Sequence[Rivals]) -> dict[str, float]:
    """`steward/gap_closed_10pct` and the like: of the order of eviction, learned as a training does."""
    figures = {}
    for at in rivals:
        if STEWARD not in at.replayed:
            continue
        result, lru = at.replayed[STEWARD].result, at.replayed[LRU].result
        capacity = f"{100 * at.capacity_fraction:g}pct"
        figures[f"steward/wan_bytes_{capacity}"] = float(result.wan_bytes)
        figures[f"steward/byte_hit_ratio_{capacity}"] = result.byte_hit_ratio
        figures[f"steward/wan_saved_share_{capacity}"] = 1 - result.wan_bytes / max(1, lru.wan_bytes)
        if (gap := at.gap_closed(STEWARD)) is not None:
            figures[f"steward/gap_closed_{capacity}"] = gap.mean
            if gap.lower is not None:
                figures[f"steward/gap_closed_lower_{capacity}"] = gap.lower
    return figures


def _saved(rivals: Sequence[Rivals]) -> str:
    """The WAN bytes saved against LRU, as text: `4.2 % at 5 % of the bytes read, …`."""
    savings = []
    for at in rivals:
        ours, lru = (at.replayed[policy].result.wan_bytes for policy in (CHALLENGER_PLAN, LRU))
        savings.append(f"{percent(1 - ours / max(1, lru), 1)} at {percent(at.capacity_fraction)}")
    return f"{', '.join(savings)} of the bytes read"
