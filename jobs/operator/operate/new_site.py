"""`cachecast init`: the settings of a new site."""

import dataclasses
import glob
import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from features.common import files
from features.common.errors import ConfigError, InputError
from features.common.times import day_label
from features.schema import ACCESSES
from jobs.ground.settings.layers import toml_text
from jobs.ground.settings.sources import known
from jobs.ground.settings.tree import Settings
from jobs.loop.ingest import sources
from jobs.operator.operate.site_facts import NewSite

_HEAD = """\
# Written by `cachecast init`. conf/base.toml has every other key with its default, and
# conf/caches/example.toml.sample those of a cache. Secrets belong into secrets.toml beside this file, mode
# 0600, or into the environment.
"""


_GENERATED = "rucio_traces"  # the source of what `workload` pulls into tables
_OPTIONS = {
    "url": "--cache root://xc1.example.org:1094",
    "name": "--name xc1",
    "capacity": "--capacity 50TB",
    "rucio.url": "--rucio https://rucio.example.org",
    "account": "--rucio-account root",
    "root": "--tables /srv/cachecast/tables",
}
"""By the key in the settings, the option that it comes from, with an example."""


@dataclasses.dataclass(frozen=True)
class WrittenSite:
    """The file that was written, the root of its tables, and the commands to run next."""

    settings: str
    tables: str
    next: list[str]


def _is_server(cache: str) -> bool:
    """Whether `cache` is the address of a server, not a folder. Raises InputError if it is neither."""
    try:
        port = urlsplit(cache).port
    except ValueError:
        port = 0
    if port == 0 or (re.match("[a-z]+:", cache) and not cache.startswith(("root://", "roots://"))):
        raise InputError(f"not the address of a cache: {cache!r:.100}; give for example {_OPTIONS['url']}")
    return "://" in cache


def run(site: NewSite, *, out: Path, force: bool, now_s: int) -> WrittenSite:
    """Write the settings to file `out`; without `force` it must not exist.

    The folder of a directory-backed cache is made if it is not there. Raises InputError, and ConfigError if
    they are no valid settings.
    """
    out = Path(_absolute(str(out)))
    if out.exists() and not force:
        raise InputError(f"{out} exists already; give --force to replace it, or another --out")
    complete = _complete(site)
    tables = complete.tables or str(out.parent / "tables")
    text = _HEAD
    for name, table in _sections(complete, out.parent, tables):
        text += f"\n[{name}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in table.items())
    _check(text, out)
    try:
        if complete.cache and not _is_server(complete.cache):
            Path(complete.cache).mkdir(parents=True, exist_ok=True)
        files.write(out, text)
    except OSError as error:
        raise InputError(f"cannot write {error.filename}: {error.strerror}; choose another folder") from None
    return WrittenSite(str(out), tables, list(_next(complete, out, day_label(now_s))))


def _complete(site: NewSite) -> NewSite:
    """The same with absolute paths, and a name for the cache. Raises InputError."""
    if not sources.select_sources([site.source], lambda source: source.table is ACCESSES):
        raise InputError(f"no source of accesses is called {site.source!r}; {known()}")
    header = sources.load_source(site.source).header
    if header is None and re.search(r"\.csv(\.\w+)?$", site.records, re.IGNORECASE):
        raise InputError(
            f"{site.records} is a CSV, which {site.source} does not read; study it with `cachecast report "
            "--trace`, or write its lines as docs/source.md says for the loop of pull, plan and push"
        )
    if site.cache and not site.capacity:
        raise InputError("the capacity of the cache is unknown; give --capacity, for example 50TB")
    if site.capacity and not site.cache:
        raise InputError("a capacity is given, and no cache; give --cache, for example root://HOST:1094")
    is_folder = bool(site.cache) and not _is_server(site.cache)
    # The first part of its host, or its folder.
    last = Path(site.cache).name if is_folder else (urlsplit(site.cache).hostname or "").partition(".")[0]
    suggested = re.sub(r"[^A-Za-z0-9._-]", "-", last).lstrip("._-")[:64] or "cache"
    if is_folder and not Path(site.origin or "/nowhere").is_dir():
        raise InputError(
            f"{site.cache!r} is no root:// address, and {site.origin!r} is not a folder; a cache in "
            "a folder needs --origin, where its files are fetched from"
        )
    records = _absolute(site.records)
    # Only Spark knows other file systems and {a,b}.
    is_checked = records.startswith("/") and "{" not in records
    if is_checked and not glob.glob(records):  # noqa: PTH207 - Path.glob takes no absolute one
        raise InputError(f"nothing is at {records}; give the path or glob of the records, or none")
    return dataclasses.replace(
        site,
        records=records,
        name=(site.name or suggested) if site.cache else "",
        cache=_absolute(site.cache),
        origin=_absolute(site.origin) if is_folder else "",
        namespace=_absolute(site.namespace),
        gstream=_absolute(site.gstream),
        tables=_absolute(site.tables),
    )


def _absolute(path: str) -> str:
    """An absolute local path without `..`; a URL or an empty text is returned unchanged.

    Links stay as they are, but for those that a `..` follows.
    """
    if not path or "://" in path:
        return path
    parts = Path(path).absolute().parts
    n_left = len(parts) - parts[::-1].index("..") if ".." in parts else 0
    return str(Path(*parts[:n_left]).resolve().joinpath(*parts[n_left:]) if n_left else Path(*parts))


def _sections(site: NewSite, folder: Path, tables: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The tables of the settings; all paths are absolute, so that commands may run in any folder."""
    yield "tables", {"root": tables}
    yield "mlflow", {"uri": f"sqlite:///{folder}/mlflow.db", "artifacts": f"{folder}/mlartifacts"}
    yield "training", {"spool": f"{folder}/trainings"}
    yield "push", {"journal": f"{folder}/journal.db"}
    yield "steward", {"state": f"{folder}/steward"}
    yield "serve", {"database": f"{folder}/placement.db"}
    yield "sources", {"demand": {"*": site.source}}
    pulled = {"pull": {site.source: site.records}} if site.records else {}
    yield "airflow", {"reports": f"{folder}/reports", **pulled}
    if site.rucio:
        yield "rucio", {"url": site.rucio, "account": site.rucio_account}
    if site.cache:
        kind = "xcache" if _is_server(site.cache) else "directory"
        places = {"origin": site.origin, "namespace": site.namespace, "gstream": site.gstream}
        cache: dict[str, object] = {"name": site.name, "kind": kind}
        cache |= {"url": site.cache, "capacity": site.capacity}
        cache |= {key: place for key, place in places.items() if place}
        cache |= {"watermarks": list(map(float, site.watermarks.split(",")))} if site.watermarks else {}
        cache |= {"steward": True} if site.steward else {}
        yield f"caches.{_key(site.name)}", cache


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(key))} = {_value(entry)}" for key, entry in value.items()) + " }"
    return toml_text(value) if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_text(name)


def _check(text: str, out: Path) -> None:
    """Raise ConfigError, naming `out`, unless `text` is valid settings."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / out.name
        trial.write_text(text, encoding="utf-8")
        try:
            Settings.load(trial)
        except ConfigError as error:
            key, _, what = str(error).partition(": ")[2].partition(": ")
            part = key if key in _OPTIONS else key.rpartition(".")[2]
            if part not in _OPTIONS:
                raise ConfigError(str(out), f"{key}: {what}") from None
            option, example = _OPTIONS[part].split()
            raise InputError(
                f"{option}: {what.partition('; see ')[0]}; give for example {option} {example}"
            ) from None


def _next(site: NewSite, out: Path, day: str) -> Iterator[str]:
    yield f"export CACHECAST_CONF={shlex.quote(str(out))}"
    yield "cachecast doctor"
    if site.steward:
        yield f"cachecast steward --cache {shlex.quote(site.name)}  # on the cache's host: docs/steward.md"
    if site.records:
        yield f"cachecast pull --source {site.source} --input {shlex.quote(site.records)} --day {day}"
    else:
        trial = shlex.quote(str(out.parent / "generated"))
        yield f"cachecast pull --source {site.source} --input PATH --day {day}  # PATH: your records"
        yield f"cachecast workload --out {trial} --tables {trial}/tables  # or generated reads"
        if site.source != _GENERATED:
            demand = shlex.quote(f'{{ "*" = "{_GENERATED}" }}')
            yield f"export CACHECAST_SOURCES__DEMAND={demand}  # with these tables alone"
