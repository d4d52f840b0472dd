"""What to place where: the planner that production and replay share, its limits, rules and value."""

from __future__ import annotations

from prefetch.plan.items import Cause, Limit, Plan, PlanLimits
from prefetch.plan.planner import Judgement, ValuePlanner
from prefetch.plan.rules import Rule, Treatment, treatments
from prefetch.plan.scores import Files, Scores, plain_files
from prefetch.plan.value import Objective

__all__ = [
    "Cause",
    "Files",
    "Judgement",
    "Limit",
    "Objective",
    "Plan",
    "PlanLimits",
    "Rule",
    "Scores",
    "Treatment",
    "ValuePlanner",
    "plain_files",
    "treatments",
]
