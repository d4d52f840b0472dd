"""The models of an evaluation, and its record: the table evaluations, and a run in MLflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from features.common.times import DAY_S, as_of_label
from features.results import BESIDE_A_STEWARD, CHALLENGER_PLAN, CHAMPION_PLAN, EVALUATIONS, LRU, STEWARD
from jobs.evaluate.rows import Compared, answer_rows, day_rows
from jobs.report import runs
from jobs.settings.tree import MlflowSettings, Settings
from jobs.store.keys import MomentKey
from jobs.store.promotions import named
from jobs.store.tables import Tables
from jobs.store.trainings import as_trained, trained
from jobs.text import percent
from jobs.train.registry import awaited_registry
from models.serving.names import CANDIDATE, CHAMPION
from models.serving.runs import TableRead
from models.serving.scoring import RegionModels


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The candidate that is evaluated, and the champion that it is compared with, if that is possible.

    `candidate` None: the evaluation is not recorded.
    """

    candidate: str | None = None
    champion: RegionModels | None = None
    notes: tuple[str, ...] = ()


NOBODY = Candidates()


def candidates(settings: Settings, *, from_s: int) -> Candidates:
    """The region's candidate, and its champion unless that was trained on data from `from_s` on.

    Raises ServiceError, ModelError if files of either were changed, or the champion was trained with other
    settings.
    """
    region = settings.region.name
    registry = awaited_registry(settings.mlflow)
    candidate = registry.version_at(region, CANDIDATE)
    tables = Tables(settings.tables.root)
    champion, known = named(tables, region=region).get(CHAMPION), trained(tables, region=region)
    notes = []
    if candidate is None:
        notes.append(f"region {region!r} has no candidate: nothing is recorded; run `cachecast train` first")
    else:
        registry.verify_bundle(as_trained(known, candidate))
    if champion is None or champion.version == candidate:
        return Candidates(candidate, None, tuple(notes))
    if champion.version not in known:
        notes.append(f"an older cachecast trained the champion {champion.version}, so it is no rival")
        return Candidates(candidate, None, tuple(notes))
    served = registry.load_version(champion)
    if (seen_s := served.bundle.until_s) > from_s:
        notes.append(
            f"the champion {champion.version} has seen accesses until {as_of_label(seen_s)}, "
            "so it is no rival here"
        )
        return Candidates(candidate, None, tuple(notes))
    served.bundle.check(spec=settings.features.spec, region=region)
    return Candidates(candidate, served, tuple(notes))


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """An evaluation that is to be recorded. `name`, `params`: of its run; `tables`: that it read."""

    name: str
    params: Mapping[str, object]
    compared: Sequence[Compared]
    first_day_s: int
    tables: tuple[TableRead, ...] = ()
    known: Candidates = NOBODY

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


def record_days(settings: Settings, found: Evaluated, *, last_day_s: int) -> None:
    """Write the days into the table evaluations, at the end of `last_day_s`, if there is a candidate."""
    if found.known.candidate is None:
        return
    rows = day_rows(found.compared, model_version=found.known.candidate, scored_by=found.scored_by)
    key = MomentKey.at(last_day_s + DAY_S, settings.region.name)
    Tables(settings.tables.root).replace_rows(EVALUATIONS, rows, key)


def record_run(mlflow: MlflowSettings, found: Evaluated, files: Callable[[Path], None]) -> str:
    """Write the evaluation as a run of MLflow, linked to the versions that it judged; return its id.

    `files`: writes its page and table into a folder. Raises ServiceError.
    """
    registry, rows = awaited_registry(mlflow), answer_rows(found.compared)
    linked = {policy: registry.model_id(version) for policy, version in found.scored_by.items()}
    versions = {"candidate": found.known.candidate, "champion": found.scored_by.get(CHAMPION_PLAN)}
    run = runs.comparison(
        found.name,
        "evaluation",
        rows,
        params=found.params,
        tags={name: version for name, version in versions.items() if version is not None},
    )
    judged = runs.figures([row for row in rows if row["policy"] == CHALLENGER_PLAN])
    judged |= runs.figures([row for row in rows if row["policy"] == STEWARD], "steward/")
    days = _days(found.compared)
    run = dataclasses.replace(
        run,
        metrics=judged or run.metrics,
        days=days.get(CHALLENGER_PLAN, {}) or days.get(STEWARD, {}),
        first_day_s=found.first_day_s,
        tables=found.tables,
        model_id=linked.get(CHALLENGER_PLAN),
        children=tuple(
            dataclasses.replace(
                child,
                days=days[child.params["policy"]],
                first_day_s=found.first_day_s,
                model_id=linked.get(child.params["policy"]),
            )
            for child in run.children
        ),
    )
    run_id = runs.keep(mlflow, run, made_by="cachecast evaluate", files=files)
    if found.known.candidate is not None:
        saved = _saved(found.compared)
        registry.tag(found.known.candidate, {"wan_saved": saved, "evaluation_run": run_id})
        said = f"{found.name}: its plans save {saved} against LRU. Run {run_id}."
        registry.describe(found.known.candidate, "Evaluated", said)
    return run_id


def _days(compared: Sequence[Compared]) -> dict[str, dict[str, tuple[float, ...]]]:
    """By policy: WAN bytes per day, and those saved against LRU, by their names in MLflow."""
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for at in compared:
        lru, capacity = at.standings.rows[LRU].result.daily, runs.at_capacity(at.capacity_fraction)
        for policy, one in at.standings.rows.items():
            wan = one.result.daily.wan_bytes
            days = found.setdefault(policy, {})
            days[f"wan_bytes_per_day/{capacity}"] = tuple(wan.astype(float).tolist())
            days[f"wan_saved_bytes_per_day/{capacity}"] = tuple((lru.wan_bytes - wan).astype(float).tolist())
    return found


def _saved(compared: Sequence[Compared]) -> str:
    """The WAN bytes saved against LRU, as text: `4.2 % at 5 % of the bytes read, …`."""
    savings = []
    for at in compared:
        ours, lru = (at.standings.rows[policy].result.wan_bytes for policy in (CHALLENGER_PLAN, LRU))
        savings.append(f"{percent(1 - ours / max(1, lru), 1)} at {percent(at.capacity_fraction)}")
    return f"{', '.join(savings)} of the bytes read"
