"""What the demo's steps share: the site, the moment of the plan, progress, and how long each step took."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape

from features.times import DAY_S, as_of_label
from jobs.cli import console
from jobs.demo.site import Site
from jobs.settings.tree import Settings
from jobs.store.tables import Tables

STEPS = 9
HELD_OUT_DAYS = 7


@dataclasses.dataclass
class Walk:
    """One run of the demo; the plan is made at `as_of_s`, on what was known then."""

    site: Site
    as_of_s: int
    quiet: bool
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
        """The moment of the plan, as partitions are named."""
        return as_of_label(self.as_of_s)

    @property
    def held_out_s(self) -> int:
        """First second of the days that no model is trained on."""
        return self.as_of_s - HELD_OUT_DAYS * DAY_S

    @property
    def held_out_cycles(self) -> list[int]:
        """Plan boundaries of the held-out days, and the plan's own moment."""
        return list(range(self.held_out_s, self.as_of_s + 1, self.settings.features.cycle))

    @contextmanager
    def step(self, name: str) -> Iterator[console.Advance]:
        """Time a step and show its progress."""
        started = time.monotonic()
        with console.progress(f"[{len(self.seconds) + 1}/{STEPS}] {name}", quiet=self.quiet) as advance:
            yield advance
        self.seconds[name] = time.monotonic() - started
        self.say(f"[green]✓[/green] {name}, {self.seconds[name]:.0f} s")

    def tell(self, text: str) -> None:
        """One line on what a step found."""
        self.say(f"  {escape(text)}")

    def say(self, markup: str) -> None:
        """One line in the terminal, unless the answer is JSON."""
        if not self.quiet:
            console.out.print(markup, highlight=False, soft_wrap=True)
