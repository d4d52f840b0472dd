"""The description of a version in MLflow: card, signature, input example, and columns with their units.

README.md             the card, which is also the version's description
MLmodel               MLflow's own file: signature, input example, and why its loader gives nothing
input_example.json    rows of the training, without names of files
features.csv          every column with its type and unit
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from features.common.units import duration_label
from models.serving.bundle import FORMAT, Bundle
from models.serving.mlflow_session import mlflow

CARD_FOLDER, CARD_FILE = "model", "README.md"
EXAMPLE_ROWS = 5
LOADER = (
    "MLflow's own loader gives no model. It would import the module, or unpickle the file, that the MLmodel "
    "file names, and whoever may write to MLflow could name any. `cachecast predict` reads the bundle by "
    "checked readers; `lightgbm.Booster(model_file=…)` reads one horizon's text, `bundle/2d.lgb` of the run."
)
_MOST_CHARS = 4900
"""A description in MLflow's databases has 5000."""
_MOST_CARD_CHARS, _MOST_SECTION_CHARS = 3000, 600
"""Of the card itself, which leaves room for sections that later steps add."""
_EXAMPLE = "input_example.json"
_WORDS = "a word"
_SHARE = "share, 0 to 1"
_UNITS = {
    "n_reads": "reads",
    "dataset_n_files": "files",
    "dataset_reads_per_file": "reads per file",
    "dataset_n_passes": "passes",
    "dataset_passes_per_day": "passes per day",
    "n_in_progress": "passes",
    "n_to_come": "passes",
    "rate_to_come": "share per hour",
    "least_share_to_come": _SHARE,
    "most_share_to_come": _SHARE,
    "position": _SHARE,
    "hour": "hour of the day, UTC",
    "weekday": "day of the week, 0 is Monday",
}
_BY_START = {
    "decayed_": "reads, decayed",
    "dataset_decayed_": "reads per file, decayed",
    "dataset_passes_": "passes, decayed",
}
_BY_END = {"_s": "seconds", "_bytes": "bytes", "_share": _SHARE, "_has_read": "0 or 1"}


def unit(column: str) -> str:
    """The unit of a numeric column of the features. Raises KeyError for a column without one."""
    if column in _UNITS:
        return _UNITS[column]
    for known, has_it in ((_BY_END, column.endswith), (_BY_START, column.startswith)):
        for part, name in known.items():
            if has_it(part):
                return name
    raise KeyError(column)


@dataclasses.dataclass(frozen=True)
class Card:
    """What a card shows apart from the bundle.

    `example`: rows of the features; `figures`: a row per horizon, of the test days; `learned_from`: facts of
    the data, by name; `gains`: of the columns in the first horizon that has trees, as shares.
    """

    example: pd.DataFrame
    figures: Sequence[Mapping[str, object]]
    learned_from: Mapping[str, object]
    gains: Mapping[str, float]

    def write(self, folder: Path, bundle: Bundle) -> None:
        """Write the files of the module's docstring into `folder`."""
        folder.mkdir(parents=True)
        words = set(bundle.spec.categorical_columns)
        columns = {name: _WORDS if name in words else unit(name) for name in bundle.columns}
        (folder / CARD_FILE).write_text(self._text(bundle, columns))
        lines = [f'{name},{"string" if name in words else "float"},"{of}"\n' for name, of in columns.items()]
        (folder / "features.csv").write_text("column,type,unit\n" + "".join(lines))
        rows = self.example.head(EXAMPLE_ROWS)[list(bundle.columns)]
        (folder / _EXAMPLE).write_text(rows.to_json(orient="split", index=False, double_precision=6))
        _mlmodel(bundle, words).save(str(folder / "MLmodel"))

    def _text(self, bundle: Bundle, columns: Mapping[str, str]) -> str:
        horizons = ", ".join(model.within for model in bundle.models)
        order = bundle.order
        order_horizons = (
            f"none: {bundle.no_order}" if order is None else ", ".join(map(duration_label, order.horizons_s))
        )
        best = sorted(self.gains.items(), key=lambda item: (-item[1], item[0]))[:10]
        return "\n\n".join(
            [
                f"# Which files will region {bundle.region} read again?",
                f"For a file at a decision time: the probability that it is read within {horizons}, and the "
                f"expected reads. Horizons of the order of eviction: {order_horizons}.",
                "## On later days, which the models had not seen\n\n" + _table(self.figures),
                "## Learned from\n\n"
                + "\n".join(f"- {name}: {value}" for name, value in self.learned_from.items()),
                f"## Inputs\n\n{len(columns)} columns of the table features, with types and units in "
                "features.csv. Those with the largest gain:\n\n"
                + _table(
                    [{"column": name, "unit": columns[name], "gain": f"{gain:.0%}"} for name, gain in best]
                ),
                f"## How to load it\n\n{LOADER}",
            ]
        )[:_MOST_CARD_CHARS]


def with_section(text: str, heading: str, body: str) -> str:
    """`text` with the section `heading` replaced by `body`, or added at its end; of bounded length."""
    sections = [part for part in text.split("\n\n## ") if not part.startswith(f"{heading}\n")]
    added = f"\n\n## {heading}\n\n{body[:_MOST_SECTION_CHARS]}"
    return "\n\n## ".join(sections)[: _MOST_CHARS - len(added)] + added


def _mlmodel(bundle: Bundle, words: set[str]) -> mlflow.models.Model:
    spec = mlflow.types.ColSpec
    inputs = [spec("string" if n in words else "float", n, required=False) for n in bundle.columns]
    outputs = [
        spec("double", f"{what}_within_{model.within}")
        for model in bundle.models
        for what in ("probability", "expected_accesses")
    ]
    schema = mlflow.types.Schema
    return mlflow.models.Model(
        flavors={"cachecast": {"bundle_format": FORMAT, "loader": LOADER}},
        signature=mlflow.models.ModelSignature(schema([*inputs]), schema([*outputs])),
        saved_input_example_info={
            "artifact_path": _EXAMPLE,
            "type": "dataframe",
            "pandas_orient": "split",
        },
    )


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of the same columns as a table in Markdown."""
    if not rows:
        return "none"
    lines = [
        list(rows[0]),
        ["---"] * len(rows[0]),
        *([_cell(value) for value in row.values()] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "–" if value is None else str(value)
