"""Settings of the caching study: its verdicts, the benefit model and the regions of origins."""

from __future__ import annotations

from typing import Literal

import pydantic

from jobs.ground.settings.values import Bytes, Section, Share
from replay.study.benefit import DOMA_JOB_TYPES, BenefitModel, EfficiencyPoint


class StudySettings(Section):
    """The study's cache, and the thresholds at which a category of files should be cached."""

    capacity_fraction: float = pydantic.Field(gt=0, le=1)
    min_saved_per_byte: float = pydantic.Field(gt=0)
    min_reread_share: float = pydantic.Field(gt=0, le=1)
    small_file: Bytes


class PointSettings(Section):
    """One measured CPU efficiency."""

    rtt_ms: float = pydantic.Field(ge=0)
    cpu_efficiency: Share
    source: str = pydantic.Field(min_length=1)


class BenefitSettings(Section):
    """The benefit model."""

    points: tuple[PointSettings, ...]
    hit_points: tuple[PointSettings, ...]
    unknown_remote_efficiency: Share
    unknown_local_efficiency: Share
    miss_slowdown: float = pydantic.Field(ge=0)
    cache_rtt_ms: float = pydantic.Field(ge=0)
    job_read_rate: Bytes
    hs06_per_core: float = pydantic.Field(gt=0)
    job_type: Literal["", "digi-reco", "derivation"]
    medium: str
    read_rates: dict[str, Bytes]

    @pydantic.model_validator(mode="after")
    def _makes_sense(self) -> BenefitSettings:
        if self.medium not in self.read_rates:
            raise ValueError(f"medium must be one of read_rates ({', '.join(self.read_rates)})")
        if missing := {"ssd", "hdd"} - set(self.read_rates):
            raise ValueError(f"read_rates must have a rate for {' and '.join(sorted(missing))}")
        return self

    @property
    def model(self) -> BenefitModel:
        """The same values in the type of the replay room. Raises ConfigError."""
        return BenefitModel(
            points=_points(self.points),
            hit_points=_points(self.hit_points),
            unknown_remote_efficiency=self.unknown_remote_efficiency,
            unknown_local_efficiency=self.unknown_local_efficiency,
            miss_slowdown=self.miss_slowdown,
            cache_rtt_ms=self.cache_rtt_ms,
            job_read_rate_bytes_s=self.job_read_rate,
            hs06_per_core=self.hs06_per_core,
            job=DOMA_JOB_TYPES.get(self.job_type),
        )


def _points(points: tuple[PointSettings, ...]) -> tuple[EfficiencyPoint, ...]:
    return tuple(EfficiencyPoint(point.rtt_ms, point.cpu_efficiency, point.source) for point in points)


class OriginSettings(Section):
    """One region of origins: patterns of hosts or RSEs, and its round-trip time."""

    hosts: tuple[str, ...] = pydantic.Field(min_length=1)
    rtt_ms: float | None = pydantic.Field(default=None, ge=0)
