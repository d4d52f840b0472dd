"""Step `forecast`: how likely each dataset of a plain popularity series is read again, and how often."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from features.common import files
from features.common.errors import InputError
from features.common.times import DAY_S
from models.series.forecast import CutQuality, ForecastFigures, HorizonForecast, forecast, rolling_quality
from models.series.series import Series, read_series

_OF_SUMS = ("absolute_error", "count_error")


@dataclasses.dataclass(frozen=True)
class ForecastSummary:
    """The summary of a forecast. `models`: by horizon; `rows`: written to `out`; `alarms`: for its reader."""

    as_of: str
    datasets: int
    models: dict[str, str]
    rows: int
    out: str
    alarms: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class HorizonQuality(ForecastFigures):
    """The mean of each figure over `cuts` forecasts; `…_spread` is its standard deviation.

    `absolute_error` and `count_error` are those of all cuts over the reads of all cuts.
    `auc_gain` is over recency; `average_precision_gain` relative to recency's, the mean of the cuts' own.
    """

    cuts: int
    auc_gain: float
    auc_gain_spread: float
    average_precision_gain: float
    average_precision_gain_spread: float


def run(*, series: Path, as_of: str, horizons: Sequence[int], out: Path) -> ForecastSummary:
    """Write `dataset,horizon,probability,expected_accesses` for every dataset with a record up to as_of.

    `series`, `as_of`: see `models.series.series.read_series`; horizons are in its units; as_of is the last
    known unit, and later ones are not used. `probability`: chance of an access in the units as_of + 1
    … as_of + horizon. Rows are sorted. The file is replaced whole. Raises InputError, SchemaError.
    """
    lengths = _checked(horizons)
    known = read_series(series, as_of)
    results = forecast(known, lengths)
    return ForecastSummary(
        as_of=as_of,
        datasets=len(known.names),
        models={str(result.n_units): result.model for result in results},
        rows=_write(out, _table(known, results)),
        out=str(out),
        alarms=tuple(_alarms(known)),
    )


def _alarms(known: Series) -> Iterator[str]:
    """That nothing was read in the last units before as_of, or that rows are equal to others."""
    unit = "week" if known.unit_s > DAY_S else "day"
    silent = known.now - int(known.unit.max(initial=known.first - 1))
    if silent >= 2:
        yield (
            f"the series has no read in the {silent} {unit}s up to --as-of, and the forecast takes that for "
            "silence; if they were not recorded, give an earlier --as-of"
        )
    if known.n_twice:
        yield (
            f"{known.n_twice} rows up to --as-of are equal to another one and count once; if they are of "
            "different sites, add a column that says which"
        )


def judge(
    *, series: Path, as_of: str, horizons: Sequence[int], cuts: Sequence[int], out: Path
) -> list[HorizonQuality]:
    """The mean quality per horizon of forecasts made at `cuts` whose horizons end by as_of.

    `cuts`: weeks, or days numbered from 1. `out` gets a row per cut and horizon with the columns of
    `models.series.forecast.CutQuality`. Raises InputError, SchemaError.
    """
    lengths = _checked(horizons)
    known = read_series(series, as_of)
    qualities = list(rolling_quality(known, lengths, [cut + known.offset for cut in cuts]))
    if not qualities:
        raise InputError(
            f"nothing to judge: from no cut does a horizon of {lengths} end by {as_of}, with reads"
        )
    rows = pd.DataFrame([dataclasses.asdict(row) for row in qualities], columns=_columns(CutQuality))
    rows.insert(0, "cut", rows.pop("cut") - known.offset)
    _write(out, rows)
    judged = sorted(set(rows["horizon"]))
    return [_mean(n_units, rows[rows["horizon"] == n_units]) for n_units in judged]


def _checked(horizons: Sequence[int]) -> list[int]:
    lengths = sorted(set(horizons))
    if not lengths or lengths[0] < 1:
        raise InputError(f"horizons {list(horizons)}: need whole numbers of units, at least 1")
    return lengths


def _mean(n_units: int, rows: pd.DataFrame) -> HorizonQuality:
    gains = pd.DataFrame(
        {
            "auc_gain": rows["auc"] - rows["recency_auc"],
            "average_precision_gain": rows["average_precision"] / rows["recency_average_precision"] - 1,
        }
    )
    means = pd.concat([rows, gains], axis=1).mean()
    of_sums = [name for name in _columns(ForecastFigures) if name.endswith(_OF_SUMS) and "median" not in name]
    pooled = rows[of_sums].mul(rows["reads"], axis=0).sum() / rows["reads"].sum()
    figures = {**means, **pooled, **gains.std(ddof=0).add_suffix("_spread")}
    own = {name: float(figures[name]) for name in _columns(HorizonQuality) if name not in ("horizon", "cuts")}
    return HorizonQuality(horizon=n_units, cuts=len(rows), **own)


def _columns(kind: type[ForecastFigures]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _table(series: Series, results: Sequence[HorizonForecast]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "dataset": np.tile(np.array(series.names, dtype=object), len(results)),
            "horizon": np.repeat([r.n_units for r in results], len(series.names)),
            "probability": np.concatenate([r.probability for r in results]),
            "expected_accesses": np.concatenate([r.expected for r in results]),
        }
    ).sort_values(["dataset", "horizon"], kind="stable")


def _write(out: Path, table: pd.DataFrame) -> int:
    with files.replaced(out) as draft:
        table.to_csv(draft, index=False, float_format="%.6f", lineterminator="\n")
    return len(table)
