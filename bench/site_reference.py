"""The pages of the documentation site that are made from the code: commands, settings, tables, decisions.

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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages; called by MkDocs."""
    made = {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/tables.md": tables(),
        "adr/README.md": decisions(),
    }
    for path, lines in made.items():
        files.append(File.generated(config, path, content="\n".join(lines)))
    return files


def commands() -> Iterator[str]:
    """Every command with its options, in the order of the help."""
    yield "# Commands\n\nMade from the code. Every command also has `--quiet`, `--verbose` and `--help`."
    for group, found in main.GROUPS.items():
        yield f"\n## {group}"
        for one in found:
            name = main._named(one)[0]
            loaded = main.load(name)
            parts = loaded.commands.items() if hasattr(loaded, "commands") else [("", loaded)]
            for part, command in parts:
                yield from _command(f"{name} {part}".strip(), command)


def _command(name: str, command: Any) -> Iterator[str]:
    yield f"\n### {name}\n\n{' '.join((command.help or '').split())}\n"
    yield "| option | default | meaning |\n|---|---|---|"
    for option in command.params:
        if option.name in ("quiet", "verbose", "help"):
            continue
        words = ", ".join(f"`{one}`" for one in option.opts)
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
    found = [one for module in (schema, results) for one in vars(module).values() if isinstance(one, Table)]
    for table in sorted({one.name: one for one in found}.values(), key=lambda one: one.name):
        key, parts = ", ".join(table.key), ", ".join(table.partition) or "nothing"
        yield f"## {table.name}\n\n{table.grain}; key {key}; partitioned by {parts}.\n"
        yield "| column | type | meaning |\n|---|---|---|"
        for column in table.columns:
            needed = "" if column.required else " (may be null)"
            yield f"| `{column.name}` | {column.kind}{needed} | {_cell(column.doc)} |"
        yield ""


def decisions() -> Iterator[str]:
    """The decisions that are hard to undo."""
    yield "# Decisions\n\nWhat was decided that is hard to undo, and why.\n"
    for path in sorted((ROOT / "docs" / "adr").glob("0*.md")):
        title = path.read_text().partition("\n")[0].lstrip("# ")
        yield f"- [{title}]({path.name})"
