"""Parameters of a generated region, and the published figures that it is compared with."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from features.errors import ConfigError

PRODUCTION, ANALYSIS = "production", "analysis"
MAX_ACCESSES = 1 << 30
"""The most reads that the arrays of a workload can hold."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MOST = (
    ("sigma", 10),
    (("hours", "hours_median"), 100 * 366 * 24),
    (("days", "days_median"), 100 * 366),
    ("files_median", MAX_ACCESSES),
    (("n_users", "n_groups", "n_campaigns"), MAX_ACCESSES),
    ("_bytes", 2**55),
    (("factor", "scale"), 10**6),
)
"""The most that a key can be, by the end of its name: what is larger fits no date, size or array."""
_FIRST, _LAST = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1970, 2100))
_TYPES = {"int": (int,), "float": (int, float), "str": (str,), "dt.datetime": (dt.datetime,)}
_ABOVE_ZERO = (
    *("days", "_median", "size_bytes", "scale", "factor", "value"),
    *("n_users", "n_groups", "n_campaigns"),
)
EXTENSIVE = ("accesses", "files", "bytes")
PER_DAY = ("accesses_per_day", "bytes_per_day")
METRICS = (
    *EXTENSIVE,
    *PER_DAY,
    "mean_size_bytes",
    "reread_share",
    "origin_share",
    "hit_ratio",
    "byte_hit_ratio",
)
"""Metrics of published figures: EXTENSIVE ones grow with days and scale, PER_DAY ones with scale only."""


@dataclasses.dataclass(frozen=True)
class CategoryConfig:
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
    files: int
    accesses: int
    mean_size_bytes: float
    size_sigma: float
    files_median: float
    files_sigma: float
    mc_share: float
    unread_share: float
    once_share: float
    activity: str
    popularity_sigma: float
    partial_share: float
    close_share: float
    close_hours: float
    pass_hours_median: float
    pass_hours_sigma: float
    read_share: float
    return_days_median: float = math.nan
    return_sigma: float = math.nan
    gap_sigma: float = 0.0
    closeness_sigma: float = 0.0
    decay_days: float = math.inf
    steady_share: float = 0.0


@dataclasses.dataclass(frozen=True)
class HabitsConfig:
    """Groups of users who read in sessions; without it, passes over a dataset return on their own.

    Reads begin `warm_days` before the start, and those before it are dropped. Each dataset belongs to one of
    `n_groups` groups and of `n_campaigns` campaigns, whose appeal is log-normal (`group_sigma`,
    `campaign_sigma`), and is read by users of its group, the more active ones more often (`user_sigma`).
    `pace_sigma`: spread of the users' paces, which multiply gaps between passes. After a dataset, a session
    goes on to the next one of the group with probability `session_share`, on average `session_hours` later.
    """

    warm_days: int
    n_groups: int
    n_campaigns: int
    group_sigma: float
    campaign_sigma: float
    user_sigma: float
    pace_sigma: float
    session_share: float
    session_hours: float


@dataclasses.dataclass(frozen=True)
class OriginConfig:
    """A site (RSE) or host that files come from, its share of the files, and its region."""

    name: str
    share: float
    region: str


@dataclasses.dataclass(frozen=True)
class Published:
    """A published figure of the scenario's period; `metric` is one of METRICS.

    It is about one `category` or `region`, or about all. Hit ratios are those of an XCache of
    `capacity_bytes` with watermarks `low` and `high`. `note` states assumptions.
    """

    metric: str
    value: float
    category: str = ""
    region: str = ""
    capacity_bytes: float = 0.0
    low: float = 0.90
    high: float = 0.95
    note: str = ""


@dataclasses.dataclass(frozen=True)
class WorkloadConfig:
    """The parameters of a region's accesses, which comments in conf/workloads/*.toml explain.

    The categories' `accesses` and `files` are for `period_days` and scale 1; `days` at `scale` are generated.
    """

    seed: int
    start: dt.datetime
    days: int
    period_days: int
    scale: float
    experiment: str
    size_scale: float
    min_size_bytes: int
    sites: tuple[str, ...]
    n_users: int
    fresh_share: float
    new_version_share: float
    night_factor: float
    weekend_factor: float
    origins: tuple[OriginConfig, ...]
    categories: tuple[CategoryConfig, ...]
    published: tuple[Published, ...] = ()
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
        known = dict(values)
        common = known.pop("category", {})
        known.setdefault("days", known.get("period_days"))
        known.setdefault("scale", 1.0)
        known["sites"] = _texts(known.get("sites", ()), f"{where}: sites")
        known["origins"] = _rows(OriginConfig, known.get("origins", ()), f"{where}: origins")
        rows = known.get("categories", ())
        known["categories"] = _rows(CategoryConfig, rows, f"{where}: categories", common)
        if "habits" in known:
            known["habits"] = _rows(HabitsConfig, [known["habits"]], f"{where}: habits")[0]
        known["published"] = _rows(Published, known.get("published", ()), f"{where}: published")
        config: WorkloadConfig = _build(cls, known, where)
        _check(config, where)
        return config


def _texts(values: Any, where: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise ConfigError(where, "is no list of strings; write it as those in conf/workloads")
    for value in values:
        if not value or not value.isprintable():
            raise ConfigError(where, f"{value!r} is no name; it must be printable, and not empty")
    return tuple(values)


def _rows(kind: type[Any], rows: Any, where: str, common: Mapping[str, Any] = _NOTHING) -> tuple[Any, ...]:
    if not isinstance(rows, Sequence) or not all(isinstance(row, Mapping) for row in rows):
        raise ConfigError(where, "is not a list of tables; see conf/workloads for examples")
    return tuple(_build(kind, {**common, **row}, f"{where}[{i}]") for i, row in enumerate(rows))


def _build(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    fields = dataclasses.fields(kind)
    needed = {field.name for field in fields if field.default is dataclasses.MISSING}
    unknown, missing = sorted(set(values) - {f.name for f in fields}), sorted(needed - set(values))
    if unknown:
        raise ConfigError(where, f"unknown key {', '.join(unknown)}; remove it")
    if missing:
        raise ConfigError(where, f"missing key {', '.join(missing)}; add it")
    for field in fields:
        if field.name in values and field.type in _TYPES:
            _check_value(field.name, values[field.name], _TYPES[field.type], where)
    return kind(**values)


def _check_value(name: str, value: Any, types: tuple[type, ...], where: str) -> None:
    """Check a value's type and, by the end of its name, its range: shares, sigmas, sizes."""
    if type(value) not in types:
        raise ConfigError(f"{where}: {name}", f"{value!r} is not {' or '.join(t.__name__ for t in types)}")
    if name.endswith("share") and not 0 <= value <= 1:
        raise ConfigError(f"{where}: {name}", f"{value} must be within 0 … 1")
    if name.endswith(("sigma", "hours", "seed")) and value < 0:
        raise ConfigError(f"{where}: {name}", f"{value} must not be negative")
    if name.endswith(_ABOVE_ZERO) and not value > 0:
        raise ConfigError(f"{where}: {name}", f"{value} must be above 0")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: {name}", f"{value} is no number that can be reckoned with")
    for ends, most in _MOST:
        if name.endswith(ends) and value > most:
            raise ConfigError(f"{where}: {name}", f"{value} must be at most {most}")


def _check(config: WorkloadConfig, where: str) -> None:
    for key in ("sites", "origins", "categories"):
        if not getattr(config, key):
            raise ConfigError(f"{where}: {key}", "is empty; give at least one")
    if config.start.tzinfo is None:
        raise ConfigError(f"{where}: start", "has no time zone; end it with Z")
    if not _FIRST <= config.start < _LAST:
        raise ConfigError(f"{where}: start", f"{config.start} must be from 1970 to 2099")
    for category in config.categories:
        here = f"{where}: {category.name}"
        if not 0 < category.files <= category.accesses:
            counts = f"{category.accesses} accesses of {category.files} files"
            raise ConfigError(here, f"{counts}: files must be above 0, and each is read at least once")
        if category.activity not in (PRODUCTION, ANALYSIS):
            raise ConfigError(f"{here}: activity", f"{category.activity!r} must be production or analysis")
        if category.unread_share == 1:
            raise ConfigError(f"{here}: unread_share", "1 leaves no file that is read; give less than 1")
    _check_habits(config, where)
    _check_amounts(config, where)
    for figure in config.published:
        if figure.metric not in METRICS:
            message = f"unknown metric {figure.metric!r}; known: {', '.join(METRICS)}"
            raise ConfigError(f"{where}: published", message)
        if figure.metric.endswith("hit_ratio") and not figure.capacity_bytes > 0:
            raise ConfigError(f"{where}: published", f"{figure.metric} needs a capacity_bytes above 0")


def _check_habits(config: WorkloadConfig, where: str) -> None:
    habits = config.habits
    if habits is None:
        for category in config.categories:
            if math.isnan(category.return_days_median + category.return_sigma):
                told = "missing key return_days_median or return_sigma; add both, or [habits]"
                raise ConfigError(f"{where}: {category.name}", told)
        return
    if habits.n_groups > config.n_users:
        told = f"{habits.n_groups} groups have more members than the {config.n_users} users; lower it"
        raise ConfigError(f"{where}: habits: n_groups", told)
    if habits.session_share == 1:
        raise ConfigError(f"{where}: habits: session_share", "1 ends no session; give less than 1")
    for category in config.categories:
        if category.close_share == 1:
            raise ConfigError(f"{where}: {category.name}: close_share", "1 ends no spell; give less than 1")
        if not category.close_hours > 0:
            told = f"{category.close_hours} is no median of gaps; it must be above 0 with [habits]"
            raise ConfigError(f"{where}: {category.name}: close_hours", told)


def _check_amounts(config: WorkloadConfig, where: str) -> None:
    asked = config.growth * sum(category.accesses for category in config.categories)
    if asked > MAX_ACCESSES:
        raise ConfigError(where, f"{asked:.3g} accesses are more than {MAX_ACCESSES}; lower days or scale")
    listed = sum(config.growth * one.files / (1 - one.unread_share) for one in config.categories)
    if listed > MAX_ACCESSES:
        told = f"{listed:.3g} files, those never read with them, are more than {MAX_ACCESSES}"
        raise ConfigError(f"{where}: unread_share", f"{told}; lower it, days or scale")
