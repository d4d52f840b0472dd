"""The cache that is replayed, as values."""

from __future__ import annotations

import dataclasses

from features.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class CacheConfig:
    """An XCache: watermarks as shares of the capacity, defaults as XCache ships. Raises ConfigError."""

    capacity_bytes: int
    low_watermark: float = 0.90
    high_watermark: float = 0.95
    purge_interval_s: int = 300

    def __post_init__(self) -> None:
        if self.capacity_bytes <= 0:
            raise ConfigError("capacity_bytes", f"{self.capacity_bytes} must be above 0")
        if not 0 < self.low_watermark <= self.high_watermark <= 1:
            marks = f"{self.low_watermark}, {self.high_watermark}"
            raise ConfigError("watermarks", f"{marks} must rise within 0 … 1, as 0.90, 0.95")
        if self.purge_interval_s <= 0:
            raise ConfigError("purge_interval_s", f"{self.purge_interval_s} must be above 0")
