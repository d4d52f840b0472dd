"""The demo's site: its folders, and its settings, written so that its steps can be run again by hand."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from pathlib import Path
from typing import NamedTuple

from features.common.errors import InputError
from jobs.settings.layers import SECRETS
from jobs.settings.tree import Settings

MARKER = ".cachecast-demo"


class Marks(NamedTuple):
    """The bytes that a cache may hold, and its watermarks as shares of them."""

    capacity_bytes: int
    low: float
    high: float

    @property
    def low_bytes(self) -> int:
        """Where a purge ends."""
        return int(self.low * self.capacity_bytes)

    @property
    def high_bytes(self) -> int:
        """Where a purge begins."""
        return int(self.high * self.capacity_bytes)


MARKS = Marks(600_000_000, 0.90, 0.95)
"""Of the demo's cache, which holds about one in a hundred of the month's bytes."""

_BASE = """\
# Written by `cachecast demo`; its steps can be run again with --conf on this folder.
[tables]
root = "{out}/tables"

[spark]
driver_memory = "2g"

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

_PRIVATE = """\
[users]
salt = "{salt}"
"""

_CACHE = """\
name = "{name}"
kind = "{kind}"
url = "{url}"
capacity = {marks.capacity_bytes}
watermarks = [{marks.low}, {marks.high}]
touch_every = "1s"
evict_guard = "0s"  # the demo's jobs have ended when it evicts
{more}
"""


@dataclasses.dataclass(frozen=True)
class Site:
    """The demo's folder. `base`: settings that the demo's own override; `tables`: root of the tables."""

    out: Path
    base: Path | None = None
    tables: str | None = None

    @property
    def conf(self) -> Path:
        """The folder of the demo's settings."""
        return self.out / "conf"

    @property
    def raw(self) -> Path:
        """The folder of the raw records."""
        return self.out / "raw"

    def settings(self) -> Settings:
        """The demo's settings, as its commands read them."""
        return Settings.load(self.conf, base=self.base, tables=self.tables)

    def add_cache(self, *, name: str, kind: str, url: str, marks: Marks = MARKS, **paths: Path) -> None:
        """Configure a cache; `paths` are its folders by key."""
        more = "\n".join(f'{key} = "{path}"' for key, path in paths.items())
        text = _CACHE.format(name=name, kind=kind, url=url, marks=marks, more=more)
        (self.conf / "caches" / f"{name}.toml").write_text(text)


def fresh(out: Path, *, base: Path | None = None, tables: str | None = None, order: str = "auto") -> Site:
    """An empty demo folder at `out`, whose stewards follow `order`.

    Raises InputError if it holds files that no demo made.
    """
    out = out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / MARKER).exists():
        raise InputError(f"{out} is not empty and was not made by a demo; give another --out")
    shutil.rmtree(out, ignore_errors=True)
    site = Site(out, base, tables)
    (site.conf / "caches").mkdir(parents=True)
    (out / MARKER).touch()
    (site.conf / "base.toml").write_text(_BASE.format(out=out, order=order))
    private = site.conf / SECRETS
    private.touch(mode=0o600)
    private.write_text(_PRIVATE.format(salt=secrets.token_hex(16)))
    return site
