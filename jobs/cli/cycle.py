"""The command `cycle`."""

from __future__ import annotations

from typing import Annotated

import typer

from features.errors import InputError
from features.times import parse_as_of
from jobs.cli import console, options


def cycle(
    as_of: Annotated[str, typer.Option(help="start of the cycle, for example 2026-03-01T04:00:00Z")],
    pull: Annotated[
        list[str] | None,
        typer.Option(
            help="SOURCE=PATH to pull first, for example rucio_traces=hdfs://nn/traces/; may be repeated"
        ),
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="train on the days before, and score with the new candidate")
    ] = False,
    conf: options.Conf = None,
    tables: options.TablesRoot = None,
    as_json: options.Json = False,
) -> None:
    """Pull what is new, compute features, and predict, in one command."""
    settings, as_of_s = options.load(conf, tables=tables), parse_as_of(as_of)
    inputs = [_input(text) for text in pull or []]
    from jobs import cycle as job

    with console.progress("cycle", quiet=as_json) as advance:
        answer = job.run(
            settings,
            as_of_s=as_of_s,
            inputs=inputs,
            train=train,
            on_progress=advance,
        )
    console.show_warning(answer, as_json=as_json)


def _input(text: str) -> tuple[str, str]:
    source, equals, path = text.partition("=")
    if not (source and equals and path):
        raise InputError(f"not SOURCE=PATH: {text!r}; write for example rucio_traces=/data/traces/")
    return source, path
