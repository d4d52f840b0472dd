"""The command `storage`: how much of a site's storage a cache replaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from features.common.units import parse_bytes
from jobs.cli import console, options, parsing
from jobs.cli.options import AskedReads
from jobs.ground import text

if TYPE_CHECKING:
    from jobs.ground.settings.tree import Settings

N_SHOWN = 5
"""Datasets that the screen shows, the largest; --json has all."""


def storage(
    settings: Settings,
    asked: AskedReads,
    capacity: Annotated[
        str,
        typer.Option(help="capacities of the cache, for example 100TB,175TB; the verdict is of the first"),
    ],
    trace: options.TracePath = None,
    rse: Annotated[
        list[str] | None,
        typer.Option(
            help="pattern of the site's RSEs, for example 'PIC*'; may be repeated; defaults to `storage` of "
            "the caches, with --trace to the trace's own files"
        ),
    ] = None,
    second: Annotated[
        str, typer.Option(help="capacity of a cache behind each, for example a region's 1PB")
    ] = "",
    network: Annotated[
        str, typer.Option(help="most WAN traffic per second in the busiest hour, for example 1.2GB")
    ] = "",
    keep_ruled: Annotated[
        bool, typer.Option("--keep-ruled", help="propose only replicas that no rule keeps")
    ] = False,
    node_disk: Annotated[str, typer.Option(help="disk of a cache node")] = "96TB",
    node_network: Annotated[
        str, typer.Option(help="network of a cache node, per second; defaults to [serve] cache_read")
    ] = "",
    since: options.Since = None,
    until: options.Until = None,
    out: options.Out = None,
) -> None:
    """Say how much of a site's storage a cache replaces.

    Which replicas could be dropped and served by a cache, with the WAN traffic that it takes, the disk that
    it saves, and its nodes. The last replica on disk is never proposed, one with a rule is named as such.
    """
    from jobs.studies.simulate import storage as job

    request = job.StorageRequest(
        capacities=parsing.sizes(capacity),
        second_bytes=parse_bytes(second) if second else 0,
        network_bytes_s=parse_bytes(network) if network else None,
        node_disk_bytes=parse_bytes(node_disk),
        node_bytes_s=parse_bytes(node_network) if node_network else settings.serve.cache_read,
        keep_ruled=keep_ruled,
    )
    with console.progress("storage") as advance:
        answer = job.run(
            settings,
            asked.accesses(trace, since, until),
            request,
            rses=rse or [],
            on_progress=advance,
        )
    job.export_storage(answer, out, title="Storage against cache")
    if console.shown_as_json(answer):
        return
    console.notes(answer.notes)
    for line in (answer.verdict, *answer.findings):
        console.sentence(line)
    console.show(answer.points, title="by capacity", columns=text.STORAGE_COLUMNS)
    console.show(answer.stored, title="stored, by what keeps it")
    largest = sorted(answer.datasets, key=lambda one: -one.stored_bytes)[:N_SHOWN]
    title = f"largest of {len(answer.datasets)} datasets that go"
    console.show(largest, title=title)
