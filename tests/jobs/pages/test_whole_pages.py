"""Whatever a command writes for people and programs is whole, or as it was: also when the disk is full."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from full_disk import full_disk
from replay_rows import replay_row

from features.results import REPLAYS
from jobs.cli.options import EXPORTS
from jobs.ground.settings.tree import Settings
from jobs.ground.spark import write_code
from jobs.ground.store.tables import Tables
from jobs.operator.operate import new_site, prometheus
from jobs.operator.operate.site_facts import NewSite
from jobs.operator.site_report import build
from jobs.studies.simulate import replay_trace, workload

Write = Callable[[Path], object]


def exported(suffix: str) -> Write:
    answer: Any = SimpleNamespace(
        rows=[replay_row("lru", 10), replay_row("bound", 5)] * 40,
        notes=("a note",),
        capacity="capacity_bytes",
    )
    return lambda folder: replay_trace.export_replay(answer, folder / f"page{suffix}", title="Replay")


def reported(folder: Path) -> None:
    tables = folder.parent / "tables"
    rows = [replay_row("lru", 9), replay_row("bound", 5)]
    if not tables.exists():
        Tables(str(tables)).replace_rows(REPLAYS, rows, ("2026-03-01", "default"))
    build.run(Settings.load(env={}, tables=str(tables)), out=folder / "report.html")


def measured(folder: Path) -> None:
    def warn(why: str) -> None:
        raise OSError(why)

    samples = [(f"cachecast_m{i}", "help", {"cache": "c"}, 1.0) for i in range(50)]
    prometheus.leave(str(folder), "m", samples, warn)


def month() -> Any:
    return workload.load("demo", start_s=1_772_323_200, seed=3, days=1)


WRITERS: dict[str, Write] = {
    **{f"export {suffix}": exported(suffix) for suffix in EXPORTS},
    "report": reported,
    "metrics": measured,
    "package": lambda folder: write_code(folder / "package.zip"),
    "init": lambda folder: new_site.run(NewSite(), out=folder / "site.toml", force=True, now_s=0),
    "workload": lambda folder: workload.write(month(), out=folder, raw=False),
    "raw workload": lambda folder: workload.write(month(), out=folder, raw=True),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_leaves_what_was_there_and_no_half(tmp_path: Path, writer: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    WRITERS[writer](folder)
    before = contents(folder)
    assert before
    with full_disk(100), pytest.raises(Exception, match=r"(?i)too large|no space|cannot write"):
        WRITERS[writer](folder)
    assert contents(folder) == before
    shutil.rmtree(folder)
    folder.mkdir()
    with full_disk(100), pytest.raises(Exception, match=r"(?i)too large|no space|cannot write"):
        WRITERS[writer](folder)
    assert contents(folder) == {}
