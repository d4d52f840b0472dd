"""The ranking of `cachecast forecast` beside plainer ones, over the cuts of bench/forecast.py.

bench/forecast_plain.py            every series of bench/forecast.py
bench/forecast_plain.py cms        those whose file's name has the word

`plain`: one LightGBM classifier with its own settings on the same rows: 100 trees of 31 leaves at rate .1,
neither sampled nor regularised. `sought`: ours, but 100 trees whose thresholds are sought, not drawn.
`ahead`: cuts at which the AUC is above ours. AUCs of single cuts differ by more than these means.

Needs the environment that `make verify` makes: .venv/bin/python bench/forecast_plain.py
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from forecast import DATA, SERIES, Judged  # noqa: E402

from features.arrays import BoolArray, FloatArray  # noqa: E402
from jobs.cli.parsing import spans  # noqa: E402
from models.evaluation.metrics import ranking_quality  # noqa: E402
from models.learning.learners import LightGBM, Scorer  # noqa: E402
from models.series.past import Past, fit_chance  # noqa: E402
from models.series.series import read_series  # noqa: E402

PLAIN = LightGBM(trees=100, leaves=31, min_rows=20, rate=0.1, column_share=1.0, row_share=1.0, l2=0.0)


def _sought(n_rows: int) -> LightGBM:
    return LightGBM(trees=100, leaves=6, min_rows=min(300, max(5, n_rows // 100)), rate=0.05)


_RECENCY = "recency"
_FITS: dict[str, Callable[[pd.DataFrame, BoolArray], Scorer | None]] = {
    "ours": fit_chance,
    "sought": lambda x, y: _sought(len(y)).fit(x, y.astype(np.float64)),
    "plain": lambda x, y: PLAIN.fit(x, y.astype(np.float64)),
}


class Ranked(NamedTuple):
    """One ranking at one cut."""

    auc: float
    average_precision: float


def main() -> None:
    """Print a Markdown table per series."""
    words = sys.argv[1:]
    for judged in SERIES:
        if not words or any(word in judged.series for word in words):
            print(f"\n{judged.series}, cuts {judged.cuts}\n")
            print("| horizon | ranking | auc | average_precision | ahead |\n|---|---|---|---|---|")
            for row in compared(judged):
                print(f"| {row} |", flush=True)


def compared(judged: Judged) -> Iterator[str]:
    """The cells of a row per horizon and ranking: means over the cuts."""
    found: dict[tuple[int, str], list[Ranked]] = collections.defaultdict(list)
    for cut in spans(judged.cuts):
        for key, ranked in at_cut(judged, cut).items():
            found[key].append(ranked)
    for (horizon, name), each in sorted(found.items(), key=lambda item: item[0][0]):
        auc, precision = np.mean(each, axis=0)
        ours = found[horizon, "ours"]
        ahead = sum(one.auc > other.auc for one, other in zip(each, ours, strict=True))
        yield f"{horizon} | {name} | {auc:.3f} | {precision:.3f} | {ahead} of {len(each)}"


def at_cut(judged: Judged, cut: int) -> Mapping[tuple[int, str], Ranked]:
    """The rankings at one cut, by horizon and name; they are learned from what was known then."""
    series = read_series(DATA / judged.series, judged.as_of)
    unit = cut + series.offset
    past = Past(series.until(unit))
    rows, present = past.matured(1), past.present().x
    assert rows is not None, f"cut {cut}: too early to learn anything"
    known = np.flatnonzero(series.born <= unit)
    scores: dict[str, FloatArray] = {}
    for name, fit in _FITS.items():
        scorer = fit(rows.x, past.reads(rows, 1) > 0)
        assert scorer is not None, f"cut {cut}: too early to learn anything"
        scores[name] = scorer.score(present)
    scores[_RECENCY] = -present["recency"].to_numpy(np.float64)
    ranked = {}
    for horizon in spans(judged.horizons):
        read = series.reads_within(known, np.full(known.size, unit), horizon) > 0
        if unit + horizon <= series.now and 0 < read.sum() < read.size:
            for name, score in scores.items():
                quality = ranking_quality(read, score)
                ranked[horizon, name] = Ranked(quality.auc, quality.average_precision)
    return ranked


if __name__ == "__main__":
    main()
