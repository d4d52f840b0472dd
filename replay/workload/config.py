"""Parameters of a generated region, and the published figures that it is compared with."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from features.common.faults import of_keys, validated, with_defaults

PRODUCTION, ANALYSIS = "production", "analysis"
MAX_ACCESSES = 1 << 30
"""The most reads that the arrays of a workload can hold."""

# Larger values fit no date, size or array.
_CENTURY_DAYS = 100 * 366
_FIRST, _LAST = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1970, 2100))
Count = Annotated[int, Field(gt=0, le=MAX_ACCESSES)]
Days = Annotated[int, Field(gt=0, le=_CENTURY_DAYS)]
Hours = Annotated[float, Field(ge=0, le=24 * _CENTURY_DAYS)]
Share = Annotated[float, Field(ge=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
Sigma = Annotated[float, Field(ge=0, le=10)]
Bytes = Annotated[float, Field(ge=0, le=2**55)]
Factor = Annotated[float, Field(gt=0, le=10**6)]
_A_LIST = Field(strict=False, min_length=1)


def _printable(name: str) -> str:
    if not name or not name.isprintable():
        raise ValueError(f"{name!r} is no name; it must be printable, and not empty")
    return name


class _Table(pydantic.BaseModel):
    """A table of a scenario's file; no value is converted, and unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class CategoryConfig(_Table):
    """One category of files, and how it is read.

    A period of the scenario has `accesses` reads of `files` files; `unread_share` of the catalogue's files
    are never read. Sizes and files per dataset are log-normal. `once_share` of the datasets are read once,
    whole, by production. The others are read in many passes, by `activity`, with a log-normal popularity. The
    next pass over a dataset begins soon after the last one (probability `close_share`; exponential, mean
    `close_hours`) or later (log-normal). `read_share`: part of a file that a task reads.

    With `HabitsConfig`, `files` are expected and users read in spells: after each pass another follows with
    probability `close_share`, at log-normal gaps with median `close_hours`. `gap_sigma`: their spread within
    a dataset; `closeness_sigma`: that of the medians between datasets. A dataset's appeal falls by a factor
    of e in each `decay_days` after its birth, to `steady_share` of the first.
    """

    name: str
    files: Count
    accesses: Count
    mean_size_bytes: Annotated[Bytes, Field(gt=0)]
    size_sigma: Sigma
    files_median: Annotated[float, Field(gt=0, le=MAX_ACCESSES)]
    files_sigma: Sigma
    mc_share: Share
    unread_share: ShareBelowOne
    once_share: Share
    activity: Literal["production", "analysis"]
    popularity_sigma: Sigma
    partial_share: Share
    close_share: Share
    close_hours: Hours
    pass_hours_median: Annotated[Hours, Field(gt=0)]
    pass_hours_sigma: Sigma
    read_share: Share
    return_days_median: Annotated[float, Field(gt=0, le=_CENTURY_DAYS)] = math.nan
    return_sigma: Sigma = math.nan
    gap_sigma: Sigma = 0.0
    closeness_sigma: Sigma = 0.0
    decay_days: Annotated[float, Field(gt=0, le=_CENTURY_DAYS)] = math.inf
    steady_share: Share = 0.0

    @pydantic.model_validator(mode="after")
    def _is_read(self) -> CategoryConfig:
        if self.files > self.accesses:
            raise ValueError(f"{self.accesses} accesses of {self.files} files: each is read at least once")
        return self


class HabitsConfig(_Table):
    """Groups of users who read in sessions; without it, passes over a dataset return on their own.

    Reads begin `warm_days` before the start, and those before it are dropped. Each dataset belongs to one of
    `n_groups` groups and of `n_campaigns` campaigns, whose appeal is log-normal (`group_sigma`,
    `campaign_sigma`), and is read by users of its group, the more active ones more often (`user_sigma`).
    `pace_sigma`: spread of the users' paces, which multiply gaps between passes. After a dataset, a session
    goes on to the next one of the group with probability `session_share`, on average `session_hours` later.
    """

    warm_days: Days
    n_groups: Count
    n_campaigns: Count
    group_sigma: Sigma
    campaign_sigma: Sigma
    user_sigma: Sigma
    pace_sigma: Sigma
    session_share: ShareBelowOne
    session_hours: Hours


class OriginConfig(_Table):
    """A site (RSE) or host that files come from, its share of the files, and its region."""

    name: str
    share: Share
    region: str


class WorkloadConfig(_Table):
    """The parameters of a region's accesses, which comments in conf/workloads/*.toml explain.

    The categories' `accesses` and `files` are for `period_days` and scale 1; `days` at `scale` are generated.
    `published`: figures that `bench/calibrate.py` compares with those of what is generated.
    """

    seed: Annotated[int, Field(ge=0)]
    start: Annotated[pydantic.AwareDatetime, Field(ge=_FIRST, lt=_LAST)]
    days: Days
    period_days: Days
    scale: Factor = 1.0
    experiment: str
    size_scale: Factor
    min_size_bytes: Annotated[int, Field(gt=0, le=2**55)]
    sites: Annotated[tuple[Annotated[str, pydantic.AfterValidator(_printable)], ...], _A_LIST]
    n_users: Count
    fresh_share: Share
    new_version_share: Share
    night_factor: Factor
    weekend_factor: Factor
    origins: Annotated[tuple[OriginConfig, ...], _A_LIST]
    categories: Annotated[tuple[CategoryConfig, ...], _A_LIST]
    published: tuple[dict[str, str | int | float], ...] = Field(default=(), strict=False)
    habits: HabitsConfig | None = None

    @property
    def start_s(self) -> int:
        """First second of the first day, since 1970."""
        return int(self.start.timestamp())

    @property
    def growth(self) -> float:
        """The factor that `accesses` and `files` of the categories are multiplied by."""
        return self.scale * self.days / self.period_days

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = "workload") -> WorkloadConfig:
        """The config in a parsed TOML file called `where`. Raises ConfigError.

        The table `category` has defaults for all categories; `days` defaults to `period_days`, `scale` to 1.
        """
        known = with_defaults(values, "category", "categories")
        known.setdefault("days", known.get("period_days", 1))
        return validated(cls, known, where=where, see="conf/workloads/demo.toml")

    @pydantic.model_validator(mode="after")
    def _fits(self) -> WorkloadConfig:
        asked = self.growth * sum(category.accesses for category in self.categories)
        if asked > MAX_ACCESSES:
            raise of_keys(f"{asked:.3g} accesses are more than {MAX_ACCESSES}; lower days or scale", "scale")
        listed = sum(
            self.growth * category.files / (1 - category.unread_share) for category in self.categories
        )
        if listed > MAX_ACCESSES:
            what = f"{listed:.3g} files, those never read with them, are more than {MAX_ACCESSES}"
            raise of_keys(f"{what}; lower unread_share, days or scale", "scale")
        return self

    @pydantic.model_validator(mode="after")
    def _returns(self) -> WorkloadConfig:
        """Passes return by each category's own law, or by users' habits, which need other keys."""
        habits = self.habits
        if habits is not None and habits.n_groups > self.n_users:
            what = f"{habits.n_groups} groups have more members than the {self.n_users} users; lower it"
            raise of_keys(what, "habits.n_groups")
        for i, category in enumerate(self.categories):
            at = f"categories.{i}"
            if habits is None and math.isnan(category.return_days_median + category.return_sigma):
                raise of_keys("return_days_median or return_sigma is missing; add both, or [habits]", at)
            if habits is not None and category.close_share == 1:
                raise of_keys("1 ends no spell; give less than 1", f"{at}.close_share")
            if habits is not None and not category.close_hours > 0:
                raise of_keys("0 is no median of gaps; give more, or drop [habits]", f"{at}.close_hours")
        return self
