"""The `cachecast` command: one command per step, each a thin face over a job.

Options mean the same everywhere: `--conf` a site's settings, `--tables` the tables' root, `--json` the answer
as JSON on stdout, `--day` and `--as-of` the time in question (no job asks the clock). Errors that a person
can mend are one line and exit code 1; jobs are imported only by the command that runs them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from features.errors import CachecastError
from features.times import parse_as_of, parse_day
from jobs.cli import console
from jobs.cli.cycle import cycle
from jobs.cli.evaluate import evaluate
from jobs.cli.failures import remedy
from jobs.cli.hosts import collect, scan
from jobs.cli.known import never_cache, prefill, queue
from jobs.cli.local import down, up
from jobs.cli.models import predict, promote, train
from jobs.cli.options import Conf, Json, TablesRoot
from jobs.cli.outcomes import outcomes
from jobs.cli.parsing import counts, moments, spans
from jobs.cli.placement import place, serve
from jobs.cli.push import push
from jobs.cli.replay import curve, replay
from jobs.cli.report import report
from jobs.cli.rucio import app as rucio_app
from jobs.cli.status import caches, status
from jobs.operate.prometheus import measured
from jobs.settings.tree import Settings

app = typer.Typer(
    help="Forecast which data files will be read again, and place them in XCache servers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Day = Annotated[str | None, typer.Option(help="UTC day, as 2026-03-01")]
AsOf = Annotated[
    str, typer.Option(help="moment of the decision, as 2026-03-01T04:00:00Z; nothing later is used")
]
Cache = Annotated[str, typer.Option(help="name of a configured cache")]


def main() -> None:
    """Run the command line; the only place where errors become exit codes."""
    try:
        with measured(sys.argv[1:], warn=console.warn):
            app()
    except CachecastError as error:
        _fail(str(error))
    except Exception as error:
        if (why := remedy(error)) is None:
            raise
        _fail(why)


def _fail(why: str) -> NoReturn:
    console.err.print(f"[bold red]error[/bold red]: {escape(why)}", highlight=False, soft_wrap=True)
    raise SystemExit(1) from None


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="folder for everything the demo makes")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="seed of the generated month")] = 1,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Run the whole loop on a generated month, from raw records to what each pushed file earned."""
    from jobs.demo.run import run

    run(out, seed=seed, conf=conf, tables=tables, as_json=as_json)


@app.command()
def workload(
    out: Annotated[
        Path, typer.Option(help="folder for accesses.parquet and files.parquet, or the raw files")
    ],
    scenario: Annotated[
        str,
        typer.Option(help="demo, mwt2, prague, pic, socal, or another name in conf/workloads or TOML file"),
    ] = "demo",
    start: Annotated[str | None, typer.Option(help="first UTC day, instead of the scenario's")] = None,
    seed: Annotated[int, typer.Option(help="the same seed gives the same files")] = 1,
    days: Annotated[int | None, typer.Option(help="days to generate, instead of the scenario's")] = None,
    accesses: Annotated[int | None, typer.Option(help="scale the region to about so many accesses")] = None,
    scale: Annotated[float | None, typer.Option(help="multiply accesses and files")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="write Rucio traces and a listing, as JSON lines")
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="show published figures beside the generated ones")
    ] = False,
    conf: Conf = None,
    tables: Annotated[
        str | None, typer.Option("--tables", help="write raw files and pull them into these tables")
    ] = None,
    as_json: Json = False,
) -> None:
    """Generate a region's accesses and files catalogue, calibrated to published figures where known."""
    from jobs import steps
    from jobs.simulate.workload import calibration_rows, written

    with console.progress("workload", quiet=as_json) as advance:
        answer = steps.workload(
            Settings.load(conf, tables=tables),
            scenario=scenario,
            conf=conf,
            start_s=None if start is None else parse_day(start),
            seed=seed,
            days=days,
            accesses=accesses,
            scale=scale,
            out=out,
            raw=raw,
            report=report,
            pull_too=tables is not None,
            on_progress=advance,
        )
    if as_json:
        console.show(answer, as_json=True)
        return
    console.show(written(answer), as_json=False)
    if report:
        console.show(calibration_rows(answer.calibration), as_json=False, title="published and produced")


@app.command()
def pull(
    source: Annotated[str, typer.Option(help="kind of records, as rucio_traces; docs/pull.md lists them")],
    input: Annotated[str, typer.Option(help="path or glob of the raw files")],
    day: Annotated[str, typer.Option(help="UTC day of this pull, for the rejects table, as 2026-03-01")],
    new_only: Annotated[
        bool, typer.Option("--new-only", help="leave out files that an earlier --new-only pull has taken")
    ] = False,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Read raw records into the accesses and files tables; what is refused is counted, with its reason."""
    from jobs import steps

    with console.progress(f"pulling {source}", quiet=as_json):
        answer = steps.pull(
            Settings.load(conf, tables=tables),
            source=source,
            path=input,
            day_s=parse_day(day),
            new_only=new_only,
        )
    console.show(answer, as_json=as_json)


app.command()(scan)
app.command()(collect)
app.command()(cycle)


@app.command()
def features(
    as_of: Annotated[str | None, typer.Option(help="one moment, as 2026-03-01T04:00:00Z")] = None,
    day: Day = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Compute the candidates' features at one moment, or at every cycle of a day, with Spark."""
    from jobs import steps

    settings = Settings.load(conf, tables=tables)
    with console.progress("features", quiet=as_json):
        answer = steps.features(settings, as_ofs=moments(as_of, day, settings.features.cycle))
    console.show(answer, as_json=as_json)


app.command()(train)
app.command()(predict)
app.command()(evaluate)
app.command()(promote)
app.command()(replay)
app.command()(curve)


@app.command()
def plan(
    cache: Cache,
    as_of: AsOf,
    explain: Annotated[
        str | None, typer.Option(help="say why this file (a did or a path) is planned or not; write nothing")
    ] = None,
    conf: Conf = None,
    tables: TablesRoot = None,
    as_json: Json = False,
) -> None:
    """Take a cache's inventory and decide what it should prefetch, pin and evict, with a reason per item."""
    from jobs import steps

    settings, as_of_s = Settings.load(conf, tables=tables), parse_as_of(as_of)
    if explain is None:
        console.show(steps.plan(settings, cache=cache, as_of_s=as_of_s), as_json=as_json)
    else:
        console.show(steps.explain(settings, cache=cache, as_of_s=as_of_s, item=explain), as_json=as_json)


app.command()(push)


app.command()(status)
app.command()(caches)
app.command()(up)
app.command()(down)
app.command()(prefill)
app.command()(queue)
app.command("never-cache")(never_cache)
app.command()(outcomes)
app.command()(place)
app.command()(serve)
app.command()(report)


app.add_typer(rucio_app, name="rucio")


@app.command()
def unlock(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Break the lock that a dead pull left on HDFS or S3, and show who held it; a folder needs none."""
    from jobs import steps

    console.show(steps.unlock(Settings.load(conf, tables=tables)), as_json=as_json)


@app.command()
def rooms(out: Annotated[Path, typer.Option(help="zip file to write")], as_json: Json = False) -> None:
    """Write the program as a zip, for `spark-submit --py-files`; see docs/cluster.md."""
    from jobs.spark import code_zip as rooms_zip

    path = rooms_zip.write(out)
    console.show({"rooms": str(path), "size_bytes": path.stat().st_size}, as_json=as_json)


@app.command()
def doctor(conf: Conf = None, tables: TablesRoot = None, as_json: Json = False) -> None:
    """Show what is configured, and whether it answers; exit code 1 if something does not."""
    from jobs.operate import doctor as job

    checks = job.run(Settings.load(conf, tables=tables))
    console.show(checks, as_json=as_json)
    if any(check.state == "bad" for check in checks):
        raise typer.Exit(1)


@app.command()
def forecast(
    series: Annotated[
        Path, typer.Option(help="CSV: dataset,week,accesses or date,dataset,n_accesses", exists=True)
    ],
    as_of: Annotated[str, typer.Option(help="last unit that is known: a week number, or a date")],
    horizons: Annotated[str, typer.Option(help="how many units ahead, as 1,4,13,26")],
    out: Annotated[Path, typer.Option(help="CSV to write: dataset,horizon,probability,expected_accesses")],
    cuts: Annotated[
        str | None,
        typer.Option(help="judge forecasts made at these units instead, as 52-77; out: a row each"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Forecast a plain popularity series: how likely each dataset is read again within each horizon."""
    from jobs import steps

    ahead = counts(horizons)
    with console.progress("forecast", quiet=as_json):
        answer = (
            steps.forecast(series=series, as_of=as_of, horizons=ahead, out=out)
            if cuts is None
            else steps.forecast_quality(series=series, as_of=as_of, horizons=ahead, cuts=spans(cuts), out=out)
        )
    console.show(answer, as_json=as_json)
