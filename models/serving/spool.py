"""A finished training as a folder, until `upload` has it in MLflow; with the description of its version.

    <spool>/<training id>/
        runs/<number>/…         one run's files: plots, and for LightGBM importance.csv
        bundle/…                the files of `models.serving.bundle_files`
        model/README.md         the card, which is also the version's description
        model/MLmodel           MLflow's own file: signature, input example, and why its loader gives nothing
        model/input_example.json  rows of the training, without names of files
        model/features.csv      every column with its type and unit

A folder is written under a hidden name and renamed when complete: a crash leaves no half training. What it
leaves hidden is deleted after a week, and so is a complete training that MLflow refused.
"""

import contextlib
import dataclasses
import json
import re
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from features.common.errors import ModelError
from features.common.times import DAY_S
from features.common.units import duration_label
from features.spec import UNITS
from models.learning.learners import Trees
from models.learning.order import HorizonTrees
from models.serving.bundle import FORMAT, Bundle
from models.serving.bundle_files import BUNDLE_FILE, BUNDLE_FOLDER, ORDER_FOLDER, bundle_digest, write_trees
from models.serving.mlflow_session import check_place, connect, mlflow, service_errors
from models.serving.registry import MAY_EVICT_TAG, MAY_PUSH_TAG, MODEL_TAG, UNTIL_TAG
from models.serving.runs import ID_TAG, Place, Run, delete_runs, write
from models.serving.versions import model_name, version_name

CARD_FOLDER, CARD_FILE = "model", "README.md"
EXAMPLE_ROWS = 5
LOADER = (
    "MLflow's own loader gives no model. It would import the module, or unpickle the file, that the MLmodel "
    "file names, and whoever may write to MLflow could name any. `cachecast predict` reads the bundle by "
    "checked readers; `lightgbm.Booster(model_file=…)` reads one horizon's text, `bundle/2d.lgb` of the run."
)
_MOST_CARD_CHARS = 3000
"""Which leaves room for sections that later steps add: a description in MLflow's databases has 5000."""
_EXAMPLE = "input_example.json"


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
        columns = {name: UNITS[name] for name in bundle.columns}
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
        saved_input_example_info={"artifact_path": _EXAMPLE, "type": "dataframe", "pandas_orient": "split"},
    )


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows of the same columns as a table in Markdown."""
    if not rows:
        return "none"
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    for row in rows:
        cells = ("–" if value is None else value for value in row.values())
        lines.append([f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_OURS = re.compile(r"\.?[0-9a-f]{32}")
_ABANDONED_S = 7 * DAY_S
"""A folder in which nothing was begun for so long is of a command that was killed, or that MLflow refused."""


@dataclasses.dataclass(frozen=True)
class Training:
    """A finished training in `folder`: its run, with one nested per model that was compared."""

    folder: Path
    region: str
    run: Run

    @property
    def id(self) -> str:
        """Unique among all trainings."""
        return self.folder.name

    def remove(self) -> None:
        """Delete the folder, after MLflow has all of it."""
        shutil.rmtree(self.folder)


class Spool:
    """A training being written below `root`; `finish` completes it."""

    def __init__(self, root: Path) -> None:
        """Make a fresh hidden folder. Raises ModelError if `root` cannot be written."""
        self._root, self._id = root, uuid.uuid4().hex
        self._folder = root / f".{self._id}"
        self._runs: list[Run] = []
        try:
            self._folder.mkdir(parents=True)
            before_s = time.time() - _ABANDONED_S
            for path in root.iterdir():
                with contextlib.suppress(FileNotFoundError):  # another training has finished meanwhile
                    if _OURS.fullmatch(path.name) and path.lstat().st_mtime < before_s:
                        shutil.rmtree(path, ignore_errors=True)
        except OSError as error:
            raise ModelError(
                f"[training] spool: {root} cannot be written ({error.strerror}); name another"
            ) from None

    def add(
        self,
        name: str,
        *,
        params: Mapping[str, object],
        tags: Mapping[str, str],
        metrics: Mapping[str, float],
        figures: Mapping[str, Figure],
        trees: Trees | None = None,
    ) -> None:
        """Keep a run with its plots (by file name), the gains of the columns in its `trees`."""
        folder = self._folder / "runs" / f"{len(self._runs):03}"
        folder.mkdir(parents=True)
        for file, figure in figures.items():
            figure.savefig(folder / file, dpi=90)
        if trees is not None and (gains := trees.importance()):
            lines = [
                f"{name},{gain:.6g}\n" for name, gain in sorted(gains.items(), key=lambda x: (-x[1], x[0]))
            ]
            (folder / "importance.csv").write_text("column,gain_share\n" + "".join(lines))
        where = str(folder.relative_to(self._folder))
        self._runs.append(Run(name, "model", texts(params), dict(tags), dict(metrics), folder=where))

    def add_to_bundle(self, horizon_s: int, trees: Trees) -> None:
        """Keep the model that serves a horizon."""
        write_trees(self._folder / BUNDLE_FOLDER, horizon_s, trees.text)

    def add_order(self, trees: HorizonTrees) -> None:
        """Keep the trees of the order of eviction."""
        for horizon_s, text in zip(trees.horizons_s, trees.texts, strict=True):
            write_trees(self._folder / BUNDLE_FOLDER / ORDER_FOLDER, horizon_s, text)

    def finish(self, bundle: Bundle, run: Run, *, card: Card) -> Training:
        """Complete the training, and rename its folder to its id. `run`: gets the others as nested ones."""
        folder = self._folder / BUNDLE_FOLDER
        folder.mkdir(exist_ok=True)
        (folder / BUNDLE_FILE).write_text(bundle.to_json())
        card.write(self._folder / CARD_FOLDER, bundle)
        done = self._folder.rename(self._root / self._id)
        return Training(done, bundle.region, dataclasses.replace(run, children=tuple(self._runs)))

    def discard(self) -> None:
        """Delete what was written: the training failed."""
        shutil.rmtree(self._folder, ignore_errors=True)


def texts(params: Mapping[str, object]) -> dict[str, str]:
    """Parameters as MLflow keeps them."""
    return {name: str(value) for name, value in params.items()}


_VERSIONS = "mlflow.modelVersions"
"""MLflow's own tag of a model: the versions that register it."""
_UNJUDGED = dict.fromkeys((MAY_PUSH_TAG, MAY_EVICT_TAG), "no: not evaluated yet")


@dataclasses.dataclass(frozen=True)
class Uploaded:
    """An uploaded training: its version as `name/number`, and the ids of its nested runs, in order.

    `digest`: of the bundle's files, taken before the upload.
    """

    version: str
    digest: str
    run_ids: tuple[str, ...]


def upload(training: Training, *, uri: str, artifacts: str, experiment: str) -> Uploaded:
    """Upload `training` to MLflow, and register its bundle as a version.

    Repeated after a failure it starts again: what an earlier try left is deleted first. Raises ServiceError;
    the training then stays as it was.
    """
    client, experiment_id = connect(uri, artifacts, experiment)
    place = Place(client, uri, experiment_id, training.folder)
    digest = bundle_digest(training.folder / BUNDLE_FOLDER)
    with service_errors(uri):
        _delete_remains(place, training)
        written = write(
            place,
            training.run,
            written_id=training.id,
            made_by="train",
            makes=lambda run_id: _make_model(place, training, run_id),
        )
        version = _register(place, training, written.run_id, str(written.model_id))
        # Trainings of one moment differ by nothing else that people see first.
        client.update_run(written.run_id, name=f"v{version.rpartition('/')[2]} {training.run.name}")
    return Uploaded(version, digest, tuple(child.run_id for child in written.children))


def _make_model(place: Place, training: Training, run_id: str) -> str:
    """Give the run the bundle's files, and make the model in MLflow that the figures of runs are of."""
    client = place.client
    client.log_artifacts(run_id, str(training.folder / BUNDLE_FOLDER), BUNDLE_FOLDER)
    model = client.create_logged_model(
        place.experiment_id,
        name=f"{model_name(training.region)}-{training.id[:8]}",
        source_run_id=run_id,
        tags={ID_TAG: training.id, **training.run.tags, **_UNJUDGED},
        params=training.run.params,
        model_type="cachecast",
    )
    check_place(place.uri, str(model.artifact_location))
    client.log_model_artifacts(model.model_id, str(training.folder / CARD_FOLDER))
    client.finalize_logged_model(model.model_id, "READY")
    client.log_outputs(run_id, [mlflow.entities.LoggedModelOutput(model.model_id, step=0)])
    return str(model.model_id)


def _register(place: Place, training: Training, run_id: str, model_id: str) -> str:
    client, name = place.client, model_name(training.region)
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    tags = {ID_TAG: training.id, MODEL_TAG: model_id, UNTIL_TAG: training.run.params["until"], **_UNJUDGED}
    created = client.create_model_version(
        name,
        f"models:/{model_id}",
        run_id,
        tags={**training.run.tags, **tags},
        description=(training.folder / CARD_FOLDER / CARD_FILE).read_text(),
        model_id=model_id,
    )
    version = version_name(name, created.version)
    registered = json.dumps([{"name": name, "version": created.version}])
    client.set_logged_model_tags(model_id, {_VERSIONS: registered})
    return version


def _delete_remains(place: Place, training: Training) -> None:
    client = place.client
    for version in client.search_model_versions(f"name = '{model_name(training.region)}'"):
        if version.tags.get(ID_TAG) == training.id:
            client.delete_model_version(version.name, version.version)
    mine = f"tags.`{ID_TAG}` = '{training.id}'"
    for model in client.search_logged_models([place.experiment_id], mine):
        client.delete_logged_model(model.model_id)
    delete_runs(place, training.id)
