"""Bounds that no cache of a given size can beat: `byte_bound` on WAN bytes, `object_bound` on hits."""

from __future__ import annotations

from replay.bounds.by_bytes import byte_bound
from replay.bounds.by_objects import object_bound

__all__ = ["byte_bound", "object_bound"]
