"""The demo's site: its folders, and its settings, written so that its steps can be run again by hand."""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from features.common.errors import InputError
from features.common.files import write
from features.common.progress import Advance
from features.common.times import DAY_S, as_of_label
from jobs.ground.settings.layers import SECRETS, toml_text
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.ground.text import Row

MARKER = ".cachecast-demo"
_BASE = """\
# Written by `cachecast demo`; its steps can be run again with --conf on this folder.
[tables]
root = "{out}/tables"

[spark]
driver_memory = "2g"

[region]
name = "demo"

[mlflow]
uri = "sqlite:///{out}/mlflow.db"
artifacts = "{out}/mlartifacts"
serve = ["champion", "candidate"]  # a month is too short to prove a model, so the demo pushes with --unproven

[push]
journal = "{out}/journal.db"

[features]
cycle = "4h"
horizons = ["12h", "2d"]
candidates = "7d"

[steward]
policy = "{order}"
look = "1s"
state = "{out}/steward"

[training]
max_rows = 100000
trees = 80
order = false         # learning one takes minutes
spool = "{out}/trainings"

[plan]
assumed_inflow = 0.5  # the demo's cache is small: a few hours of reads turn it over
model_weight = 1.0  # the demo does not evaluate its model
"""
_CACHE = """\
name = "{name}"
kind = "{kind}"
url = {url}
capacity = {marks.capacity_bytes}
watermarks = [{marks.low}, {marks.high}]
touch_every = "1s"
evict_guard = "0s"  # the demo's jobs have ended when it evicts
{more}
"""
STEPS = 10
HELD_OUT_DAYS = 7


class Marks(NamedTuple):
    """The bytes that a cache may hold, and its watermarks as shares of them."""

    capacity_bytes: int
    low: float
    high: float

    @property
    def low_bytes(self) -> int:
        return int(self.low * self.capacity_bytes)

    @property
    def high_bytes(self) -> int:
        return int(self.high * self.capacity_bytes)


MARKS = Marks(600_000_000, 0.90, 0.95)  # about one in a hundred of the month's bytes


@dataclasses.dataclass(frozen=True)
class Site:
    """The demo's folder. `base`: settings that the demo's own override; `tables`: root of the tables."""

    out: Path
    base: Path | None = None
    tables: str | None = None

    @property
    def conf(self) -> Path:
        return self.out / "conf"

    def settings(self) -> Settings:
        return Settings.load(self.conf, base=self.base, tables=self.tables)

    def add_cache(self, *, name: str, kind: str, url: str, marks: Marks = MARKS, **paths: Path) -> None:
        """Configure a cache; `paths` are its folders by key."""
        more = "\n".join(f"{key} = {toml_text(str(path))}" for key, path in paths.items())
        text = _CACHE.format(name=name, kind=kind, url=toml_text(url), marks=marks, more=more)
        (self.conf / "caches" / f"{name}.toml").write_text(text)


def fresh(out: Path, *, base: Path | None = None, tables: str | None = None, order: str = "auto") -> Site:
    """An empty demo folder at `out`. Raises InputError if it holds files that no demo made."""
    out = out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / MARKER).exists():
        raise InputError(f"{out} is not empty and was not made by a demo; give another --out")
    shutil.rmtree(out, ignore_errors=True)
    site = Site(out, base, tables)
    (site.conf / "caches").mkdir(parents=True)
    (out / MARKER).touch()
    (site.conf / "base.toml").write_text(_BASE.format(out=toml_text(str(out))[1:-1], order=order))
    write(site.conf / SECRETS, f'[users]\nsalt = "{secrets.token_hex(16)}"\n', mode=0o600)
    return site


class Screen(Protocol):
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
        return self.site.settings()

    @property
    def tables(self) -> Tables:
        return Tables.of(self.settings)

    @property
    def as_of(self) -> str:
        return as_of_label(self.as_of_s)

    @property
    def held_out_s(self) -> int:
        """First second of the days that no model is trained on."""
        return self.as_of_s - HELD_OUT_DAYS * DAY_S

    @contextmanager
    def step(self, name: str) -> Iterator[Advance]:
        """Time a step and show its progress."""
        started = time.monotonic()
        with self.screen.progress(f"[{len(self.seconds) + 1}/{STEPS}] {name}") as advance:
            yield advance
        self.seconds[name] = time.monotonic() - started
        self.screen.line(f"✓ {name}, {self.seconds[name]:.0f} s")

    def show_result(self, text: str) -> None:
        self.screen.line(f"  {text}")
