"""The settings of `[features]` and `[plan]`; conf/base.toml explains the keys."""

from __future__ import annotations

from typing import Literal

import pydantic

from features.common.errors import ConfigError
from features.spec import LONGEST_HORIZON_S, FeatureSpec
from jobs.ground.settings.values import Bytes, Hour, Pattern, Seconds, Section, Share
from prefetch.plan.rules import TEST, Objective, Rule
from prefetch.push.origins import SourceLimits
from replay.study.benefit import Cluster, best_cached_fraction


class FeatureSettings(Section):
    cycle: Seconds
    horizons: tuple[Seconds, ...] = pydantic.Field(min_length=1)
    candidates: Seconds
    active_datasets: Seconds
    unread_per_dataset: int = pydantic.Field(ge=0)
    history: Seconds
    local_up_to: int = pydantic.Field(ge=0)

    @pydantic.model_validator(mode="after")
    def _on_the_grid(self) -> FeatureSettings:
        if 86400 % self.cycle and self.cycle % 86400:
            raise ValueError("cycle must divide a day, or be whole days")
        for key, values in (
            ("horizons", self.horizons),
            ("candidates", (self.candidates,)),
            ("active_datasets", (self.active_datasets,)),
            ("history", (self.history,)),
        ):
            if any(value % self.cycle for value in values):
                raise ValueError(f"{key} must be multiples of cycle")
        if max(self.horizons) > LONGEST_HORIZON_S:
            raise ValueError(f"horizons must be at most {LONGEST_HORIZON_S // 86400} days")
        if self.history < max(self.candidates, self.active_datasets):
            raise ValueError("history must be at least as long as candidates and active_datasets")
        return self

    @property
    def spec(self) -> FeatureSpec:
        return FeatureSpec(
            cycle_s=self.cycle,
            horizons_s=self.horizons,
            candidate_s=self.candidates,
            active_dataset_s=self.active_datasets,
            unread_per_dataset=self.unread_per_dataset,
            history_s=self.history,
        )


class RuleSettings(Section):
    """One rule; its patterns may contain `*` and `?`."""

    action: Literal["include", "exclude", "pin", "never"]
    tiers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    @pydantic.model_validator(mode="after")
    def _is_a_rule(self) -> RuleSettings:
        try:
            _ = self.rule
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def rule(self) -> Rule:
        return Rule(self.action, self.tiers, self.names, self.users)


class SourceSettings(Section):
    """The limit of an origin; `hosts`: patterns of hosts or RSEs; the first source that matches counts."""

    hosts: tuple[str, ...] = pydantic.Field(min_length=1)
    per_hour: Bytes


class ClusterSettings(Section):
    """The site whose `cached_fraction` KIT's Eq. 1 gives; rates in bytes per second."""

    network: Bytes
    cache_per_node: Bytes
    n_nodes: int = pydantic.Field(gt=0)
    workflow_per_slot: Bytes
    n_slots: int = pydantic.Field(gt=0)

    @property
    def cached_fraction(self) -> float:
        """The share of a dataset that is worth caching."""
        return best_cached_fraction(
            Cluster(self.network, self.cache_per_node, self.n_nodes, self.workflow_per_slot, self.n_slots)
        )


class PlanSettings(Section):
    objective: Objective
    horizon: Seconds
    cycle: Literal["auto"] | Seconds
    assumed_inflow: Share
    prefetch_share: float = pydantic.Field(ge=0, le=1000)
    queued_share: Share
    min_prefetch_probability: Share
    read_once_below: Share
    model_weight: Literal["auto"] | Share
    hysteresis: float = pydantic.Field(ge=0, le=10)
    control_share: Share
    evict_share: Share
    lost_share: Share
    inventory_age: Seconds
    wan_per_hour: Bytes | None = None
    quiet_hours: tuple[Hour, Hour] | None = None
    rules: tuple[RuleSettings, ...] = ()
    test_files: tuple[Pattern, ...] = ()
    sources: tuple[SourceSettings, ...] = ()
    source_failures: Share
    reconsider_source: Seconds
    tape: tuple[Pattern, ...] = ()
    from_tape: bool = False
    cluster: ClusterSettings | None = None

    @property
    def planned_by(self) -> tuple[Rule, ...]:
        """The site's rules in the planner's type, and last the one of its test files."""
        tests = (Rule(TEST, names=self.test_files),) if self.test_files else ()
        return (*(rule.rule for rule in self.rules), *tests)

    @property
    def source_limits(self) -> SourceLimits:
        """When plans and pushes stop fetching from an origin."""
        return SourceLimits(self.source_failures, self.reconsider_source)
