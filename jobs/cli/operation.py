"""The commands for the operator of a site: `status`, `doctor`, `unlock`, `package` and `files`."""

from __future__ import annotations

import shutil
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from features.common.errors import InputError
from features.common.files import write
from features.common.times import as_of_label
from jobs.cli import console
from jobs.cli.options import OutPage, file_to_write
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings
    from jobs.operator.operate.alarms import CacheStatus, Status
    from prefetch.steward.figures import StewardFigures


def status(settings: Settings, html: OutPage = None) -> None:
    """Show caches, plans, pushes, the model and alarms.

    Exit code 1 if there is an alarm.
    """
    from jobs.operator.operate import prometheus
    from jobs.operator.operate import status as job

    now_s = int(time.time())
    if html is not None:
        from jobs.operator.overview.page import Renderer

        html.parent.mkdir(parents=True, exist_ok=True)
        write(html, Renderer(settings, began_s=now_s).file(now_s=now_s))
    found = job.run(settings, now_s=now_s)
    if settings.metrics.folder:
        prometheus.leave(Path(settings.metrics.folder), "state", prometheus.of_status(found))
    if not console.shown_as_json(found):
        _show(found)
    if found.alarms:
        raise typer.Exit(1)


def _show(found: Status) -> None:
    from jobs.operator.operate.status import champion_line

    console.out.print(f"[bold]{escape(found.region)}[/bold] at {found.at}", highlight=False)
    console.sentence(f"champion: {champion_line(found)}")
    scored = f"{text.count(found.predictions)} at {found.predictions_at} by {found.scored_by}"
    console.sentence(f"predictions: {scored if found.predictions_at else 'none'}")
    if found.caches:
        console.show([_cache(one) for one in found.caches])
    if found.alarms:
        console.line(f"{len(found.alarms)} alarms, each with a section in docs/troubleshoot.md:")
        for one in found.alarms:
            console.sentence(f"{one.name} ({one.about}): {one.text}. Do: {one.remedy}")
    else:
        console.line("no alarm")


def _cache(one: CacheStatus) -> dict[str, object]:
    """A cache in few columns, each with the time of what it says."""
    held = f"{text.text('held_bytes', one.held_bytes)} of {text.text('bytes', one.capacity_bytes)}"
    fill = "" if one.fill_share is None else f" ({text.percent(one.fill_share)})"
    return {
        "cache": one.cache,
        "held": f"{held}{fill}, {text.text('files', one.held_files)} files",
        "inventory": one.inventory_at,
        "pins": f"{text.count(one.pins)}, {text.text('bytes', one.pinned_bytes)}",
        "plan": _items(one.plan_at, one.plan),
        "push": _items(one.push_at, one.push),
        "steward": "none" if one.steward is None else steward_line(one.steward),
    }


def steward_line(found: StewardFigures) -> str:
    """The order that a steward follows, how full the cache is, and what that has saved."""
    order, version, since_s = found.following, found.version, found.version_since_s
    if version is not None and since_s is not None:
        order = f"{order} ({version} serves since {as_of_label(int(since_s))})"
    used, most, evicted, saved = (
        text.text("bytes", n_bytes)
        for n_bytes in (found.used_bytes, found.target_bytes, found.evicted_bytes_hour, found.saved_bytes)
    )
    against = f"{saved} saved against LRU"
    if found.saved_bytes < 0:
        against = f"{saved.removeprefix('-')} more fetched than by LRU"
    why = "; ".join(f"{text.count(one.files)} files: {reason}" for reason, one in found.last_hour.items())
    hour = f"{evicted} evicted in the last hour" + (f" ({why})" if why else "")
    beside = "" if found.server is None else f" beside XRootD {found.server.removeprefix('v')}"
    first = f"{text.count(found.first_files)} files ({text.text('bytes', found.first_bytes)}) go first"
    return f"{order}{beside}: {used} of {most}, {hour}, {first}, {against}"


def _items(at: str | None, counts: dict[str, int]) -> str:
    return "none" if at is None else f"{at}: {text.text('items', counts)}"


def doctor(settings: Settings) -> None:
    """Show what is configured, and whether it answers.

    Exit code 1 if something does not.
    """
    from jobs.operator.operate import doctor as job

    checks = job.run(settings)
    rows = [
        {"part": check.part, "state": check.state, "found": f"{check.configured}: {check.detail}"}
        for check in checks
    ]
    console.show(checks, rows=rows)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


def unlock(settings: Settings) -> None:
    """Break the lock that a dead pull left on HDFS or S3.

    Shows who held it. A local folder needs no unlocking.
    """
    from jobs.ground.store.tables import Tables

    at = Tables.of(settings)
    console.show({"tables": at.root, "held_by": at.unlock("pull")})


def package(
    out: Annotated[Path, typer.Option(help="zip file to write", callback=file_to_write)],
) -> None:
    """Write the program as a zip for spark-submit --py-files.

    See docs/hdfs.md.
    """
    from jobs.ground.spark import code_zip

    out.parent.mkdir(parents=True, exist_ok=True)
    path = code_zip.write(out)
    console.show({"package": str(path), "size_bytes": path.stat().st_size})


def files(
    out: Annotated[Path, typer.Option(help="folder to write, a new or an empty one")],
) -> None:
    """Write what the documentation names as conf/deploy.

    Units, the Helm chart, Prometheus's rules, Grafana's dashboard, HTCondor's hooks.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not empty, and may hold files that were edited: give another --out")
    shutil.copytree(
        str(resources.files("conf") / "deploy"),
        out,
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    console.show({"files": str(out), "n_files": sum(path.is_file() for path in out.rglob("*"))})
