"""A finished training as a folder, until `models.serving.upload` has it in MLflow.

    <spool>/<training id>/
        runs/<number>/…         one run's files: plots, and for LightGBM importance.csv
        bundle/…                the files of `models.serving.bundle_files`
        model/…                 what explains the version: see `models.serving.card`

A folder is written under a hidden name and renamed when complete: a crash leaves no half training. What it
leaves hidden is deleted after a week. A complete training that MLflow refused stays.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from features.common.errors import ModelError
from features.common.times import DAY_S
from models.learning.learners import Trees
from models.learning.order import HorizonTrees
from models.serving.bundle import Bundle
from models.serving.bundle_files import BUNDLE_FILE, BUNDLE_FOLDER, ORDER_FOLDER, write_trees
from models.serving.card import CARD_FOLDER, Card
from models.serving.runs import Run

_HIDDEN = re.compile(r"\.[0-9a-f]{32}")
_ABANDONED_S = 7 * DAY_S
"""A hidden folder in which nothing was begun for so long is of a command that was killed."""


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
            _delete_abandoned(root)
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
        trials: Sequence[Run] = (),
    ) -> None:
        """Keep a run with its plots (by file name), the gains of the columns in its `trees`, and `trials`."""
        folder = self._folder / "runs" / f"{len(self._runs):03}"
        folder.mkdir(parents=True)
        for file, figure in figures.items():
            figure.savefig(folder / file, dpi=90)
        if trees is not None:
            _write_importance(trees, folder / "importance.csv")
        where = str(folder.relative_to(self._folder))
        made = Run(name, "model", texts(params), dict(tags), dict(metrics), folder=where)
        self._runs.append(dataclasses.replace(made, children=tuple(trials)))

    def add_to_bundle(self, horizon_s: int, trees: Trees) -> None:
        """Keep the model that serves a horizon."""
        write_trees(self._folder / BUNDLE_FOLDER, horizon_s, trees.text)

    def add_order(self, rungs: HorizonTrees) -> None:
        """Keep the trees of the order of eviction."""
        for horizon_s, text in zip(rungs.horizons_s, rungs.texts, strict=True):
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


def _delete_abandoned(root: Path) -> None:
    before_s = time.time() - _ABANDONED_S
    for path in root.iterdir():
        if _HIDDEN.fullmatch(path.name) and path.lstat().st_mtime < before_s:
            shutil.rmtree(path, ignore_errors=True)


def _write_importance(trees: Trees, path: Path) -> None:
    if gains := trees.importance():
        rows = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
        path.write_text("column,gain_share\n" + "".join(f"{name},{gain:.6g}\n" for name, gain in rows))


def texts(params: Mapping[str, object]) -> dict[str, str]:
    """Parameters as MLflow keeps them."""
    return {name: str(value) for name, value in params.items()}
