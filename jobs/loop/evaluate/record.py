"""The record of an evaluation: rows of its comparison, the table evaluations, and a run in MLflow."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from features.common.times import DAY_S, as_of_label
from features.common.units import duration_label
from features.results import BESIDE_A_STEWARD, CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, LRU, STEWARD
from jobs.ground.settings.tree import MlflowSettings, Settings
from jobs.ground.store.commits import MomentKey
from jobs.ground.store.tables import Tables
from jobs.ground.text import percent
from jobs.loop.trainings import as_trained, awaited_registry, promoted_models, trained_versions
from jobs.pages import runs
from models.evaluation.metrics import few_days, gap_columns
from models.serving.bundle import RegionModels
from models.serving.runs import TableRead
from models.serving.versions import CANDIDATE, CHAMPION, ModelVersion
from replay.comparison import BOUND, Comparison, Gap
from replay.result import Result


@dataclasses.dataclass(frozen=True, eq=False)
class Compared:
    """The comparison at one capacity, as a share of the bytes of all files read.

    Plans were made every `cycle_s` (None: there are none); `model_weight`: of the models in them, by policy.
    `least_hours`: core hours of the jobs if the cache had every file; None: not known.
    """

    capacity_fraction: float
    comparison: Comparison
    cycle_s: int | None = None
    model_weight: Mapping[str, float] = MappingProxyType({})
    least_hours: float | None = None

    @property
    def few_days(self) -> str | None:
        """Why there are no bounds, in words; None: there are."""
        return few_days(self.comparison.rows[LRU].result.daily.day.size)

    def figure(self, capacity: str) -> str:
        """The capacity as a part of a figure's name in MLflow; `capacity`: the column that was asked for."""
        size = self.comparison.capacity_bytes if capacity == "capacity_bytes" else self.capacity_fraction
        return runs.at_capacity(capacity, size)

    def gap(self, policy: str) -> Gap:
        """How near a policy came to the bound, day by day."""
        gap = self.comparison.gap(policy)
        assert gap is not None  # LRU and the bound always compete
        return gap


def answer_rows(compared: Sequence[Compared]) -> tuple[dict[str, object], ...]:
    """A row per capacity and policy over the counted days.

    Columns: `policy`; `capacity_bytes`; `capacity_fraction`; `cycle`, between plans, None for policies that
    make none; `hit_ratio`, None of the bound; `byte_hit_ratio`; `wan_bytes`; `prefetch_bytes`;
    `wasted_bytes`; those of `gap_columns`;
    `core_hours`, of the jobs that read, waiting included, and `waiting_hours`, those of them beyond a cache
    that has every file, None of the bound and where they are not known.
    """
    return tuple(_answer_row(at, policy) for at in compared for policy in at.comparison.rows)


def _answer_row(at: Compared, policy: str) -> dict[str, object]:
    rival = at.comparison.rows[policy]
    hours = None if rival.core_hours is None else float(rival.core_hours.sum())
    return {
        "policy": policy,
        "capacity_bytes": at.comparison.capacity_bytes,
        "capacity_fraction": at.capacity_fraction,
        "cycle": None if at.cycle_s is None or "+" not in policy else duration_label(at.cycle_s),
        "hit_ratio": None if policy == BOUND else rival.result.hit_ratio,
        "byte_hit_ratio": rival.result.byte_hit_ratio,
        "wan_bytes": rival.result.wan_bytes,
        "prefetch_bytes": rival.result.prefetch_bytes,
        "wasted_bytes": rival.result.wasted_bytes,
        **gap_columns(at.gap(policy)),
        "core_hours": hours,
        "waiting_hours": None if hours is None or at.least_hours is None else hours - at.least_hours,
    }


def no_bounds(compared: Sequence[Compared]) -> tuple[str, ...]:
    """Why the gaps closed have no bounds, a sentence per reason; empty if they have."""
    return tuple({at.few_days: None for at in compared if at.few_days})


def day_rows(
    compared: Sequence[Compared], *, model_version: str, scored_by: Mapping[str, str]
) -> list[dict[str, object]]:
    """Rows of the table evaluations, one per capacity, policy and day.

    `scored_by`: by policy, the version of the models that its plans follow.
    """
    return [
        {
            "model_version": model_version,
            "policy": policy,
            "scored_by": scored_by.get(policy),
            "capacity_fraction": at.capacity_fraction,
            "capacity_bytes": at.comparison.capacity_bytes,
            "model_weight": at.model_weight.get(policy),
            **day,
            "requests": day["hits"] + day["misses"],
            "wasted_bytes": wasted,
            "core_hours": hours,
        }
        for at in compared
        for policy, rival in at.comparison.rows.items()
        for day, wasted, hours in zip(
            rival.result.daily.rows(),
            _wasted(rival.result),
            [None] * rival.result.daily.day.size if rival.core_hours is None else rival.core_hours.tolist(),
            strict=True,
        )
    ]


def _wasted(result: Result) -> list[int]:
    """Wasted bytes per day: a replay knows only their sum, split here in proportion to prefetches."""
    sums = np.cumsum(result.daily.prefetch_bytes)
    total = max(1, int(sums[-1]))
    # Differences of rounded cumulative sums: integers that add up to the sum.
    upto = [result.wasted_bytes * int(part) // total for part in sums]
    return [now - before for before, now in itertools.pairwise([0, *upto])]


@dataclasses.dataclass(frozen=True)
class CandidateModels:
    """The candidate that is evaluated, and the champion that it is compared with, if that is possible.

    `candidate` None: the evaluation is not recorded. `digest`: of the candidate's files.
    """

    candidate: str | None = None
    champion: RegionModels | None = None
    notes: tuple[str, ...] = ()
    digest: str | None = None


NOBODY = CandidateModels()


def candidates(settings: Settings, *, from_s: int) -> CandidateModels:
    """The region's candidate, and its champion if that is a rival.

    It is none if it was trained on data from `from_s` on, if the table trainings does not name it, or if
    MLflow does not have it any more. Raises ServiceError, ModelError if files of either were changed, or the
    champion was trained with other settings.
    """
    tables, region = Tables.of(settings), settings.region.name
    registry = awaited_registry(settings.mlflow)
    candidate = registry.version_at(region, CANDIDATE)
    champion = promoted_models(tables, region=region).get(CHAMPION)
    known = trained_versions(tables, region=region)
    rival, notes, digest = None, list[str](), None
    if candidate is None:
        notes.append(f"region {region!r} has no candidate: nothing is recorded; run `cachecast train` first")
    else:
        digest = as_trained(known, candidate).digest
        registry.verify_bundle(ModelVersion(candidate, digest))
    if champion is not None and champion.version != candidate:
        name = f"the champion {champion.version}"
        if champion.version not in known:
            notes.append(f"the table trainings does not name {name}: it is no rival")
        elif not registry.has(champion.version):
            notes.append(f"MLflow does not have {name} any more: it is no rival")
        else:
            rival = registry.load_version(champion)
            if (seen_s := rival.bundle.until_s) > from_s:
                notes.append(f"{name} has seen accesses until {as_of_label(seen_s)}, so it is no rival here")
                rival = None
            else:
                rival.bundle.check(spec=settings.features.spec, region=region)
    return CandidateModels(candidate, rival, tuple(notes), digest)


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """An evaluation that is to be recorded.

    `name`, `params`: of its run; `tables`: that it read; `capacity`: the column of those asked for.
    """

    name: str
    params: Mapping[str, object]
    compared: Sequence[Compared]
    first_day_s: int
    tables: tuple[TableRead, ...] = ()
    known: CandidateModels = NOBODY
    capacity: str = "capacity_fraction"

    @property
    def scored_by(self) -> dict[str, str]:
        """By policy, the version of the models that its plans follow."""
        known = self.known
        if known.candidate is None:
            return {}
        scored_by = {CHALLENGER_PLAN: known.candidate}
        if known.champion is not None:
            scored_by[CHAMPION_PLAN] = known.champion.version
        return scored_by | {name: scored_by[of] for name, of in BESIDE_A_STEWARD.items() if of in scored_by}


def record_days(settings: Settings, evaluated: Evaluated, *, last_day_s: int) -> None:
    """Write the days into the table evaluations, at the end of `last_day_s`, if there is a candidate."""
    if evaluated.known.candidate is None:
        return
    rows = day_rows(
        evaluated.compared, model_version=evaluated.known.candidate, scored_by=evaluated.scored_by
    )
    of_files = [row | {"model_digest": evaluated.known.digest} for row in rows]
    key = MomentKey.at(last_day_s + DAY_S, settings.region.name)
    Tables.of(settings).replace_rows(EVALUATIONS, of_files, key)


def record_run(mlflow: MlflowSettings, evaluated: Evaluated, export: Callable[[Path], None]) -> str:
    """Write the evaluation as a run of MLflow, linked to the versions that it judged; return its id.

    `export`: writes its page, or table, to a file. Raises ServiceError.
    """
    registry, rows, capacity = awaited_registry(mlflow), answer_rows(evaluated.compared), evaluated.capacity
    linked = {policy: registry.model_id(version) for policy, version in evaluated.scored_by.items()}
    versions = {"candidate": evaluated.known.candidate, "champion": evaluated.scored_by.get(CHAMPION_PLAN)}
    run = runs.comparison(
        evaluated.name,
        "evaluation",
        rows,
        capacity,
        params=evaluated.params,
        tags={name: version for name, version in versions.items() if version is not None},
    )
    judged = runs.figures([row for row in rows if row["policy"] == CHALLENGER_PLAN], capacity)
    judged |= runs.figures([row for row in rows if row["policy"] == STEWARD], capacity, "steward/")
    days = _days(evaluated.compared, capacity)
    run = dataclasses.replace(
        run,
        metrics=judged or run.metrics,
        days=days.get(CHALLENGER_PLAN, {}) or days.get(STEWARD, {}),
        first_day_s=evaluated.first_day_s,
        tables=evaluated.tables,
        model_id=linked.get(CHALLENGER_PLAN),
        children=tuple(
            dataclasses.replace(
                child,
                days=days[child.params["policy"]],
                first_day_s=evaluated.first_day_s,
                model_id=linked.get(child.params["policy"]),
            )
            for child in run.children
        ),
    )
    run_id = runs.keep(mlflow, run, made_by="evaluate", export=export)
    if evaluated.known.candidate is not None:
        saved = _saved(evaluated.compared)
        registry.tag(evaluated.known.candidate, {"wan_saved": saved, "evaluation_run": run_id})
        summary = f"{evaluated.name}: its plans save {saved} against LRU. Run {run_id}."
        registry.describe(evaluated.known.candidate, "Evaluated", summary)
    return run_id


def _days(compared: Sequence[Compared], capacity: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """By policy: WAN bytes per day, and those saved against LRU, by their names in MLflow."""
    days_of: dict[str, dict[str, tuple[float, ...]]] = {}
    for at in compared:
        lru, size = at.comparison.rows[LRU].result.daily, at.figure(capacity)
        for policy, rival in at.comparison.rows.items():
            wan = rival.result.daily.wan_bytes
            days = days_of.setdefault(policy, {})
            days[f"wan_bytes_per_day/{size}"] = tuple(wan.astype(float).tolist())
            days[f"wan_saved_bytes_per_day/{size}"] = tuple((lru.wan_bytes - wan).astype(float).tolist())
    return days_of


def _saved(compared: Sequence[Compared]) -> str:
    """The WAN bytes saved against LRU, as text: `4.2 % at 5 % of the bytes read, …`."""
    savings = []
    for at in compared:
        ours, lru = (at.comparison.rows[policy].result.wan_bytes for policy in (CHALLENGER_PLAN, LRU))
        savings.append(f"{percent(1 - ours / max(1, lru), 1)} at {percent(at.capacity_fraction)}")
    return f"{', '.join(savings)} of the bytes read"
