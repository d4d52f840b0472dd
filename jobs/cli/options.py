"""Options that mean the same in every command; `--json`, `--quiet` and `--verbose` are those of all."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from features.common import files
from features.common.errors import InputError
from features.common.times import DAY_S, parse_day
from jobs.cli import console, parsing
from jobs.operator.operate.prometheus import measured

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.loop.traces import TraceFile
    from jobs.studies.simulate.accesses import Accesses


_log = logging.getLogger(__name__)
EXPORTS = (".html", ".svg", ".csv", ".parquet", ".json")
"""Formats in which `replay`, `curve` and `evaluate` write their answer, by the suffix of the file."""


def file_to_write(context: typer.Context, path: Path | None) -> Path | None:
    """`path`, checked before the work: a file can be written there. Raises InputError."""
    if path is not None and not context.resilient_parsing:
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder; name a file in it")
        if path.exists() and not path.is_file():  # /dev/null would be a file then
            raise InputError(f"cannot write {path}: it is a device or a pipe; name a file")
        _check_folder(path, path.absolute().parent)
    return path


def folder_to_fill(context: typer.Context, path: Path) -> Path:
    """`path`, checked before the work: files can be written in this folder. Raises InputError."""
    if not context.resilient_parsing:
        _check_folder(path, path.absolute())
    return path


def answer_to_write(context: typer.Context, path: Path | None) -> Path | None:
    """`path`, checked before the work: a file of one of the formats `EXPORTS`. Raises InputError."""
    if path is not None and path.suffix not in EXPORTS and not context.resilient_parsing:
        raise InputError(f"cannot write {path}: its name must end in one of {', '.join(EXPORTS)}")
    return file_to_write(context, path)


def _check_folder(path: Path, folder: Path) -> None:
    try:
        while not folder.exists():
            if folder.parent == Path(folder.anchor):
                raise InputError(
                    f"cannot write {path}: there is no folder {folder}; make it, or name another"
                )
            folder = folder.parent
        # Asking for rights is not enough: a file system may be read-only, and root has every right.
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(f"cannot write {path}: {folder}: {error.strerror}; name another place") from None


Conf = Annotated[
    Path | None,
    typer.Option(help="TOML file or folder with the site's settings [env: CACHECAST_CONF]", exists=True),
]
TablesRoot = Annotated[str | None, "root of the tables, instead of [tables] root"]
IfCurrent = Annotated[bool, "exit with 99 if a later time has overtaken --as-of, or it has not come"]
Force = Annotated[bool, "do it even if it takes away more than the settings allow"]
Cache = Annotated[str, "name of a configured cache"]
AsOf = Annotated[str | None, "decision time, for example 2026-03-01T04:00:00Z; defaults to the newest"]
MaybeAsOf = Annotated[str | None, "decision time, for example 2026-03-01T04:00:00Z; defaults to now"]
Day = Annotated[str | None, "UTC day, for example 2026-03-01"]
Capacity = Annotated[str, "capacities, for example 50TB,100TB"]
CapacityFraction = Annotated[
    str, "capacities as fractions of the bytes of all files read, for example 0.05,0.1"
]
Out = Annotated[Path | None, "also write the answer: .html, .svg, .csv, .parquet or .json", answer_to_write]
OutPage = Annotated[Path | None, "also write it as an HTML page to this file", file_to_write]
InMlflow = Annotated[bool, typer.Option("--mlflow", help="also record it as a run in MLflow")]


@dataclasses.dataclass(frozen=True)
class AskedReads:
    """The options that say what is read, a trace or days in the site's tables, and which accesses count."""

    trace: Annotated[
        Path | None,
        "a trace: accesses table, Parquet, CSV, libCacheSim's; -: stdin; else the site's tables",
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--from", help="first UTC day that counts; earlier ones warm the cache, and teach what learns"
        ),
    ] = None
    until: Annotated[str | None, typer.Option("--to", help="last UTC day that counts")] = None
    columns: Annotated[
        str,
        "the trace's columns by role: time, item, size, close, read, dataset, user, task, category, "
        "tier, origin, site, activity; for example time=t,item=id; user=: none. Usual names are known",
    ] = ""
    time_unit: Annotated[
        str,
        "unit of the trace's times, if they are numbers: s, ms, us, ns; else a format: '%d/%m/%Y'",
    ] = "s"
    time_zone: Annotated[
        str | None,
        "zone of times that state none, for example Europe/Berlin; defaults to UTC",
    ] = None
    kind: Annotated[str, "kind of the trace: auto, accesses, table, oracleGeneral, lcs"] = "auto"
    sort: Annotated[bool, "sort the trace by time instead of refusing it"] = False
    missing_size: Annotated[
        str | None,
        "of rows without one: first, that of their file; drop; or of files without: 2GB",
    ] = None
    site: Annotated[str | None, "only accesses of jobs at this site"] = None
    activity: Annotated[str | None, "only accesses of analysis, or only of production"] = None

    @property
    def only(self) -> dict[str, str]:
        roles = {"site": self.site, "activity": self.activity}
        return {role: value for role, value in roles.items() if value is not None}

    @property
    def what(self) -> str:
        days = f"{self.since or 'its start'} to {self.until or 'its end'}" if self.since or self.until else ""
        name = "" if self.trace is None else "stdin" if self.trace == parsing.STDIN else self.trace.name
        return ", ".join(part for part in (name, *self.only.values(), days) if part)

    def accesses(self) -> Accesses:
        """The accesses of the trace, or of days in the site's tables. Raises InputError."""
        from jobs.studies.simulate.accesses import Accesses

        return Accesses(self.file(), parsing.day(self.since), parsing.day(self.until), self.only)

    def file(self) -> TraceFile | None:
        """The trace up to the last day; None: there is none. Raises InputError."""
        from jobs.loop.traces import TraceFile

        if self.trace is None:
            if self != AskedReads(since=self.since, until=self.until, site=self.site, activity=self.activity):
                raise InputError("options that describe a trace need one; give --trace")
            return None
        return TraceFile(
            parsing.kept_stdin() if self.trace == parsing.STDIN else self.trace,
            parsing.columns(self.columns),
            self.time_unit,
            self.kind,
            self.sort,
            self.only,
            None if self.until is None else parse_day(self.until) + DAY_S,
            self.time_zone,
            self.missing_size,
        )


def load(conf: Path | None, *, tables: str | None = None, values: Mapping[str, object] = {}) -> Settings:
    """The settings of this run; `tables`: root of the tables; `values`: other values of the command line, by
    names such as `COLLECT__BROKER`, None if not given. Raises ConfigError.
    """
    from jobs.ground.settings.tree import Settings

    more = {
        f"CACHECAST_{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value
    }
    settings = Settings.load(conf, tables=tables, env=os.environ | more)
    where = conf or os.environ.get("CACHECAST_CONF") or "no file: the defaults"
    _log.info("settings from %s; tables at %s", where, settings.tables.root)
    # A root elsewhere, or on a mount that hangs, is not asked: the command may not need it.
    root = Path(settings.tables.root)
    is_asked = "://" not in settings.tables.root and files.silent([root]) is None
    if is_asked and (root / "GENERATED.txt").is_file():
        from jobs.ground.store import generated
        from jobs.ground.store.tables import Tables

        console.notes(filter(None, [generated.warning(Tables.of(settings))]))
    return settings


_APART = {"pull": "source", "queue": "name"}
"""Commands whose figures are kept apart by an option, as what works for one value says nothing of others."""
ROOMS = ("jobs", "models", "prefetch", "replay", "features")


class _ToTerminal(logging.Handler):
    """Prints log records of our packages as lines on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        console.log(self.format(record))


def unfolded(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as Typer takes it: with options in place of its `settings` and of dataclasses of options.

    `settings`: --conf and --tables, by which they are loaded. A dataclass: an option for each of its fields.
    `Annotated[kind, "help"]` is an option with this help; a bool has no `--no-…`. Of
    `Annotated[kind, "help", check]` the value goes through `check` first. All have `_COMMON`.
    """
    hints = get_type_hints(command, localns={"Settings": object}, include_extras=True)
    folded: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    takes_settings = "settings" in hints
    parts = [
        _option(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in folded and name != "settings"
    ]
    for kind in folded.values():
        kinds = get_type_hints(kind, include_extras=True)
        parts += [_option(field.name, kinds[field.name], field.default) for field in dataclasses.fields(kind)]
    if takes_settings:
        parts += [_option("conf", Conf, None), _option("tables", TablesRoot, None)]
    parts += [_option(name, kind, default=False) for name, kind in _COMMON.items()]
    parts.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    def typed(**values: Any) -> None:
        values = {name: value for name, value in values.items() if name not in _COMMON}
        for name, kind in folded.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
        context = values.pop("context")
        if not takes_settings:
            command(**values)
            return
        settings = load(values.pop("conf"), tables=values.pop("tables"))
        command_name = _name(context)
        if command_name in _APART:
            command_name = f"{command_name} {values[_APART[command_name]]}"
        labels = {"region": settings.region.name, "command": command_name, "cache": values.get("cache") or ""}
        with measured(settings.metrics.folder, labels, warn=console.warn):
            command(settings=settings, **values)

    typed.__doc__, typed.__name__ = command.__doc__, command.__name__
    typed.__signature__ = inspect.Signature(parts)  # type: ignore[attr-defined]
    return typed


def _name(context: typer.Context) -> str:
    """The command as it is typed, for example `push run`."""
    parent = context.parent
    return "" if parent is None else f"{_name(parent)} {context.info_name}".strip()  # type: ignore[arg-type]


def _option(name: str, kind: Any, default: object) -> inspect.Parameter:
    what, *checks = getattr(kind, "__metadata__", [None])
    if isinstance(what, str):
        words = [f"--{name.replace('_', '-')}"] if kind.__origin__ is bool else []
        (check,) = checks or [None]
        kind = Annotated[kind.__origin__, typer.Option(*words, help=what, callback=check)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _hush(*, quiet: bool) -> None:
    console.is_quiet = quiet


def _answer_in_json(context: typer.Context, *, json: bool) -> None:
    console.is_json = json
    context.call_on_close(partial(setattr, console, "is_json", False))


def _explain(*, verbose: bool) -> None:
    handler = _ToTerminal()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s", "%H:%M:%S"))
    for room in ROOMS:
        logger = logging.getLogger(room)
        logger.setLevel(logging.INFO if verbose else logging.NOTSET)
        logger.handlers = [handler] if verbose else []


def _flag(name: str, meaning: str, act: Callable[..., None]) -> Any:
    return Annotated[bool, typer.Option(name, help=meaning, callback=act, expose_value=False)]


_COMMON = {
    "json": _flag("--json", "print the answer as JSON, and nothing else", _answer_in_json),
    "quiet": _flag("--quiet", "show neither progress nor notes", _hush),
    "verbose": _flag("--verbose", "say what is read and written", _explain),
}
"""The options of every command."""
