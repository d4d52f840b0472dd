"""The pages of the site that are made from the code: commands, settings, tables, metrics, alarms, decisions.

A hook of mkdocs.yml: `make docs` builds the site, and a test of `make check` builds it with strict links.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402

from features import results, schema  # noqa: E402
from features.schema import Table  # noqa: E402
from jobs.cli import main  # noqa: E402
from jobs.operator.operate import prometheus  # noqa: E402
from jobs.operator.operate.alarms import Alarm, CacheStatus, Status  # noqa: E402
from jobs.operator.operate.prometheus import Sample  # noqa: E402
from prefetch.steward.figures import StewardFigures  # noqa: E402


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages; called by MkDocs."""
    pages = {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/tables.md": tables(),
        "reference/metrics.md": metrics(),
        "adr/README.md": decisions(),
    }
    for path, lines in pages.items():
        files.append(File.generated(config, path, content="\n".join(lines)))
    return files


def commands() -> Iterator[str]:
    """Every command with its options, in the order of the help."""
    yield _SCREEN
    for group, of_group in main.GROUPS.items():
        yield f"\n## {group}"
        for lazy_command in of_group:
            name = main._named(lazy_command)[0]
            loaded = main.load(name)
            parts = loaded.commands.items() if hasattr(loaded, "commands") else [("", loaded)]
            for part, command in parts:
                yield from _command(f"{name} {part}".strip(), command)


_SCREEN = """\
# Commands

Made from the code. The answer goes to stdout, progress, notes and warnings to stderr. Every command has

| option | shows |
|---|---|
| `--json` | the answer as JSON with every column, and no progress |
| `--quiet` | neither progress nor notes; warnings and errors stay |
| `--verbose` | what is read and written: settings, tables and their commits, inventories, Spark's start |

A table that is too wide for the terminal loses columns, and names them; `--json` has all. `COLUMNS=200` sets
the width where there is no terminal."""


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"\n### {name}\n\n{' '.join((command.help or '').split())}\n"
    if command.epilog:
        yield f"{command.epilog}\n"
    yield "| option | default | meaning |\n|---|---|---|"
    for option in command.params:
        if option.name in ("quiet", "verbose", "help"):
            continue
        words = ", ".join(f"`{flag}`" for flag in option.opts)
        default = "required" if option.required else _default(option.default)
        yield f"| {words} | {default} | {_cell(getattr(option, 'help', '') or '')} |"


def _default(value: Any) -> str:
    return "" if value in (None, "", False, ()) or callable(value) else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("\\[", "[").split()).replace("|", "\\|").replace("<", "&lt;")


def settings() -> Iterator[str]:
    """Every key with its default, and those of a cache."""
    yield "# Settings\n\nA site's file holds only what differs ([configure](../configure.md)).\n"
    for title, path in (("Every default", "base.toml"), ("A cache", "caches/example.toml.sample")):
        yield f"## {title}\n\n`conf/{path}`\n\n```toml\n{(ROOT / 'conf' / path).read_text().strip()}\n```\n"


def tables() -> Iterator[str]:
    """Every table with its grain and columns."""
    yield "# Tables\n\nParquet, below `[tables] root`. A partition is always replaced as a whole.\n"
    of_modules = [
        each for module in (schema, results) for each in vars(module).values() if isinstance(each, Table)
    ]
    for table in sorted({each.name: each for each in of_modules}.values(), key=lambda each: each.name):
        key, parts = ", ".join(table.key), ", ".join(table.partition) or "nothing"
        yield f"## {table.name}\n\n{table.grain}; key {key}; partitioned by {parts}.\n"
        yield "| column | type | meaning |\n|---|---|---|"
        for column in table.columns:
            needed = "" if column.required else " (may be null)"
            yield f"| `{column.name}` | {column.kind}{needed} | {_cell(column.doc)} |"
        yield ""


def metrics() -> Iterator[str]:
    """The metrics that commands and stewards leave for Prometheus, by example figures."""
    yield "# Metrics\n\nWhat `cachecast status`, every command and every steward leave in "
    yield "`[metrics] folder`. See the pages of [placement](../placement.md) and [collectors](../hosts.md)."
    for title, names in (
        ("Status", prometheus.of_status(_STATUS)),
        ("Stewards", prometheus.of_steward(_FIGURES)),
    ):
        yield f"\n## {title}\n\n| metric | labels | meaning |\n|---|---|---|"
        yield from dict.fromkeys(map(_metric, names))
    yield "\n## Commands\n\n`cachecast_job_{ended_seconds,duration_seconds,failed}`, by command and cache."


def _metric(sample: Sample) -> str:
    name, text, labels, _ = sample
    return f"| `{name}` | {', '.join(labels)} | {_cell(text)} |"


_AT = "2026-03-01T04:00:00Z"
_STATUS = Status(
    at=_AT,
    region="r",
    champion="m",
    decided_at=_AT,
    candidate_serves=False,
    scored_by="m",
    predictions_at=_AT,
    predictions=1,
    drifted=("size_bytes",),
    caches=(
        CacheStatus(
            cache="c",
            capacity_bytes=1,
            inventory_at=_AT,
            held_files=1,
            held_bytes=1,
            fill_share=1.0,
            pins=1,
            pinned_bytes=1,
            plan_at=_AT,
            plan={"pin": 1},
            push_at=_AT,
            push={"done": 1},
            unproven=0,
        ),
    ),
    alarms=(Alarm("drift", "r", "", ""),),
)
_COUNTS = (
    *("at_s", "started_s", "used_bytes", "target_bytes", "high_bytes", "inflow_bytes", "held_files"),
    *("first_files", "first_bytes", "open_files", "evicted_files", "evicted_bytes", "evicted_bytes_hour"),
    *("kept", "lost", "rescans", "saved_bytes"),
)
_MORE = {"alarms": {"steward-clock": ""}, "last_hour": {}, "newest": (), "version": "m"}
_VALUES: dict[str, Any] = dict.fromkeys(_COUNTS, 0) | _MORE
_FIGURES = StewardFigures(cache="c", following="lru", **_VALUES)


def decisions() -> Iterator[str]:
    """The decisions that are hard to undo."""
    yield "# Decisions\n\nWhat was decided that is hard to undo, and why.\n"
    for path in sorted((ROOT / "docs" / "adr").glob("0*.md")):
        title = path.read_text().partition("\n")[0].lstrip("# ")
        yield f"- [{title}]({path.name})"
