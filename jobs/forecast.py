"""Step `forecast`: how likely each dataset of a plain popularity series is read again, and how often."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from features.errors import InputError
from features.names import parse_name
from features.schema import ACCESSES, arrow_schema
from features.spark.features import features
from features.spec import FeatureSpec
from features.times import parse_as_of
from models.forecast import HorizonForecast, forecast, series_spec, training_units, with_every_dataset
from models.frame import sampled
from models.series import Series, read_series

_REGION = "series"
_MAX_PAIRS = 400_000
_MICROS = 1_000_000


@dataclasses.dataclass(frozen=True)
class ForecastSummary:
    """What was forecast. `models`: by horizon, what made it; `rows`: written to `out`."""

    as_of: str
    datasets: int
    training_rows: int
    models: dict[str, str]
    rows: int
    out: str


def run(
    spark: SparkSession, *, series: Path, as_of: str, horizons: Sequence[int], out: Path
) -> ForecastSummary:
    """Write `dataset,horizon,probability,expected_accesses` for every dataset with a record up to as_of.

    `series`, `as_of`: see `models.series.read_series`; horizons are in its units, as_of is the last unit
    known, and nothing after it matters. `probability`: chance of at least one access in the units as_of + 1
    … as_of + horizon. Rows are sorted. The file is replaced whole. Raises InputError, SchemaError.
    """
    wanted = sorted(set(horizons))
    if not wanted or wanted[0] < 1:
        raise InputError(f"horizons {list(horizons)}: need whole numbers of units, at least 1")
    known = read_series(series, as_of)
    spec = series_spec(known.unit_s, wanted)
    past, present = _frames(spark, known, spec, training_units(known, wanted))
    results = forecast(past, present, known, spec, wanted)
    n_rows = _write(out, known, results)
    return ForecastSummary(
        as_of=as_of,
        datasets=len(known.names),
        training_rows=len(past),
        models={str(result.n_units): result.model for result in results},
        rows=n_rows,
        out=str(out),
    )


def _frames(
    spark: SparkSession, series: Series, spec: FeatureSpec, units: list[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Features of the training units (of a sample of the datasets, if there are many), and of now."""
    n_pairs = sum(int((series.born <= unit).sum()) for unit in units)
    kept = np.flatnonzero(sampled(series.names, "", _MAX_PAIRS / max(n_pairs, 1)))
    if len(kept) == len(series.names):
        every = _features(spark, series, spec, [*units, series.now], kept)
        is_now = every["unit"] == series.now
        return every[~is_now].reset_index(drop=True), every[is_now].reset_index(drop=True)
    everyone = np.arange(len(series.names))
    past = _features(spark, series, spec, units, kept)
    return past, _features(spark, series, spec, [series.now], everyone)


def _features(
    spark: SparkSession, series: Series, spec: FeatureSpec, units: list[int], codes: np.ndarray
) -> pd.DataFrame:
    """Features with code and unit, of every dataset among `codes` known by each of the `units`."""
    as_ofs = [series.as_of_s(unit) for unit in units]
    rows = features(_accesses(spark, series, codes), None, as_ofs, spec=spec, region=_REGION).toPandas()
    code_of = {name: code for code, name in enumerate(series.names)}
    unit_of = {text: parse_as_of(text) // series.unit_s - 1 for text in rows["as_of"].unique()}
    rows = rows.assign(code=rows["did"].map(code_of), unit=rows["as_of"].map(unit_of))
    complete = with_every_dataset(rows, series, units)
    return complete[complete["code"].isin(codes)].reset_index(drop=True)


def _accesses(spark: SparkSession, series: Series, codes: np.ndarray) -> DataFrame:
    """The series as accesses, known as soon as they happen: a unit's reads count from its end on."""
    chosen = np.isin(series.code, codes)
    names = np.array(series.names, dtype=object)[series.code[chosen]]
    tiers = {name: parse_name(name).tier for name in series.names}
    start = pa.array(series.unit[chosen] * series.unit_s * _MICROS, pa.timestamp("us", tz="UTC"))
    columns = {
        "did": pa.array(names, pa.string()),
        "scope": pa.array([_REGION] * len(names), pa.string()),
        "name": pa.array(names, pa.string()),
        "tier": pa.array([tiers[name] for name in names], pa.string()),
        "accessed_at": start,
        "known_at": start,
        "n_reads": pa.array(series.reads[chosen]),
        "source": pa.array(["series"] * len(names), pa.string()),
        "event_id": pa.array([str(i) for i in range(len(names))], pa.string()),
    }
    fields = arrow_schema(ACCESSES)
    arrays = [columns.get(field.name, pa.nulls(len(names), field.type)) for field in fields]
    return spark.createDataFrame(pa.table(arrays, names=fields.names))


def _write(out: Path, series: Series, results: Sequence[HorizonForecast]) -> int:
    table = pd.DataFrame(
        {
            "dataset": np.tile(np.array(series.names, dtype=object), len(results)),
            "horizon": np.repeat([r.n_units for r in results], len(series.names)),
            "probability": np.concatenate([r.probability for r in results]),
            "expected_accesses": np.concatenate([r.expected for r in results]),
        }
    ).sort_values(["dataset", "horizon"], kind="stable")
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.draft")
    table.to_csv(draft, index=False, float_format="%.6f", lineterminator="\n")
    draft.replace(out)
    return len(table)
