"""A finished training as a folder, kept while MLflow is unavailable; `models.serving.upload` delivers it.

    <spool>/<training id>/
        training.json           the runs (`models.serving.runs`), and the answer of the job
        runs/<number>/…         one run's files: plots, and for LightGBM importance.csv
        bundle/…                the files of `models.serving.bundle_files`
        model/…                 what explains the version: see `models.serving.card`

A folder is written under a hidden name and renamed when complete: a crash leaves no half training. What it
leaves hidden is deleted after a week.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
from matplotlib.figure import Figure

from features.common import strict_json
from features.common.errors import ModelError
from features.common.times import DAY_S
from models.learning.learners import Trees
from models.learning.order import HorizonTrees
from models.serving.bundle import Bundle
from models.serving.bundle_files import BUNDLE_FILE, BUNDLE_FOLDER, ORDER_FOLDER, write_trees
from models.serving.card import CARD_FOLDER, Card
from models.serving.runs import Run

_FILE = "training.json"
_FORMAT = 5
_HIDDEN = re.compile(r"\.[0-9a-f]{32}")
_ABANDONED_S = 7 * DAY_S
"""A hidden folder in which nothing was begun for so long is of a command that was killed."""
_RUN_FOLDER = re.compile(r"runs/\d{3,}")
_RUN = pydantic.TypeAdapter(Run)


@dataclasses.dataclass(frozen=True)
class Training:
    """A finished training in `folder`: its run, with one nested per model that was compared.

    `answer`: JSON values of the job that trained, kept for it.
    """

    folder: Path
    region: str
    run: Run
    answer: dict[str, Any]

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

    def add_order(self, trees: HorizonTrees) -> None:
        """Keep the trees of the order of eviction."""
        for horizon_s, text in zip(trees.horizons_s, trees.texts, strict=True):
            write_trees(self._folder / BUNDLE_FOLDER / ORDER_FOLDER, horizon_s, text)

    def finish(self, bundle: Bundle, run: Run, *, card: Card, answer: Mapping[str, Any]) -> Training:
        """Complete the training, and rename its folder to its id. `run`: gets the others as nested ones."""
        folder = self._folder / BUNDLE_FOLDER
        folder.mkdir(exist_ok=True)
        (folder / BUNDLE_FILE).write_text(bundle.to_json())
        card.write(self._folder / CARD_FOLDER, bundle)
        body = {
            "format": _FORMAT,
            "region": bundle.region,
            "run": dataclasses.asdict(dataclasses.replace(run, children=tuple(self._runs))),
            "answer": answer,
        }
        (self._folder / _FILE).write_text(json.dumps(body, indent=1))
        self._folder.rename(self._root / self._id)
        return read(self._root / self._id)

    def discard(self) -> None:
        """Delete what was written: the training failed."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _delete_abandoned(root: Path) -> None:
    before_s = time.time() - _ABANDONED_S
    for path in root.iterdir():
        if _HIDDEN.fullmatch(path.name) and path.lstat().st_mtime < before_s:
            shutil.rmtree(path, ignore_errors=True)


def waiting(root: Path) -> list[Training]:
    """The complete trainings below `root`, the oldest first. Raises ModelError if one is damaged."""
    return [read(folder) for folder in waiting_folders(root)]


def waiting_folders(root: Path) -> list[Path]:
    """The folders of the complete trainings below `root`, the oldest first; they may be damaged."""
    files = [path for path in root.glob(f"*/{_FILE}") if not path.parent.name.startswith(".")]
    return [path.parent for path in sorted(files, key=lambda p: (p.stat().st_mtime, str(p)))]


def read(folder: Path) -> Training:
    """The training in `folder`. Raises ModelError if another version wrote it, or it is damaged."""
    try:
        raw: dict[str, Any] = strict_json.loads((folder / _FILE).read_bytes())
        if raw.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        run = _RUN.validate_python(raw.pop("run"))
        if run.folder is not None or not all(_is_known_folder(child) for child in run.children):
            raise ValueError("a run's folder is elsewhere")
        return Training(folder=folder, run=run, **raw)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"{folder}: this training cannot be read ({error}); delete it and train again"
        ) from None


def _write_importance(trees: Trees, path: Path) -> None:
    if gains := trees.importance():
        rows = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
        path.write_text("column,gain_share\n" + "".join(f"{name},{gain:.6g}\n" for name, gain in rows))


def _is_known_folder(run: Run) -> bool:
    """Whether a nested run's files are in a folder of its own, and the runs nested in it have none."""
    return bool(_RUN_FOLDER.fullmatch(run.folder or "")) and not any(child.folder for child in run.children)


def texts(params: Mapping[str, object]) -> dict[str, str]:
    """Parameters as MLflow keeps them."""
    return {name: str(value) for name, value in params.items()}
