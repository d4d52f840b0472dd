"""The demo's steps: what they share, and the progress and duration of each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label
from jobs.demo.site import Site
from jobs.settings.tree import Settings
from jobs.store.tables import Tables
from jobs.text import Row

STEPS = 10
HELD_OUT_DAYS = 7


class Screen(Protocol):
    """The output of the demo."""

    def progress(self, title: str, /) -> AbstractContextManager[Advance]:
        """Show a progress bar for one step."""

    def line(self, plain: str) -> None:
        """Show one line as it is."""

    def table(self, rows: Sequence[Row], title: str = "") -> None:
        """Show a table, if there are rows."""


@dataclasses.dataclass
class Demo:
    """One run of the demo; the plan is made at `as_of_s`, from what was known then."""

    site: Site
    as_of_s: int
    screen: Screen
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The demo's settings, with the caches configured so far."""
        return self.site.settings()

    @property
    def tables(self) -> Tables:
        """The demo's tables."""
        return Tables(self.settings.tables.root)

    @property
    def as_of(self) -> str:
        """The time of the plan as a partition value."""
        return as_of_label(self.as_of_s)

    @property
    def held_out_s(self) -> int:
        """First second of the days that no model is trained on."""
        return self.as_of_s - HELD_OUT_DAYS * DAY_S

    @property
    def held_out_cycles(self) -> list[int]:
        """Plan boundaries of the held-out days, and the time of the plan."""
        return list(range(self.held_out_s, self.as_of_s + 1, self.settings.features.cycle))

    @contextmanager
    def step(self, name: str) -> Iterator[Advance]:
        """Time a step and show its progress."""
        started = time.monotonic()
        with self.screen.progress(f"[{len(self.seconds) + 1}/{STEPS}] {name}") as advance:
            yield advance
        self.seconds[name] = time.monotonic() - started
        self.screen.line(f"✓ {name}, {self.seconds[name]:.0f} s")

    def found(self, text: str) -> None:
        """Show one line about the result of a step."""
        self.screen.line(f"  {text}")
