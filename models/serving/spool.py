"""A finished training as a folder, kept while MLflow is unavailable; `models.serving.upload` delivers it.

    <spool>/<training id>/
        training.json           name, parameters, tags, and per run: name, parameters, tags, metrics
        runs/<number>/…         one run's files: plots, and for LightGBM importance.csv and model/
        bundle/bundle.json      what `models.serving.bundle` says
        bundle/<horizon>/       that horizon's model in MLflow's LightGBM flavour; none if recency serves it
        bundle/order/           the trees of the order of eviction; none if too little was known

A folder is written under a hidden name and renamed when complete: a crash leaves no half training.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from features import strict_json
from features.errors import ModelError
from models.learning.learners import FittedLightGBM
from models.learning.order import Rungs
from models.serving.bundle import Bundle
from models.serving.bundle_files import BUNDLE_FILE, BUNDLE_FOLDER, write_order
from models.serving.native import read_native, save_native

MODEL_FOLDER = "model"
_FILE = "training.json"
_FORMAT = 3
_RUN_FOLDER = re.compile(r"runs/\d{3,}")


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A nested run for MLflow; its files are in `folder`, relative to the training's folder."""

    name: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]
    folder: str


@dataclasses.dataclass(frozen=True)
class Training:
    """A finished training in `folder`. `answer`: JSON values of the job that trained, kept for it."""

    folder: Path
    name: str
    region: str
    params: dict[str, str]
    tags: dict[str, str]
    runs: tuple[RunRecord, ...]
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
        self._runs: list[RunRecord] = []
        try:
            self._folder.mkdir(parents=True)
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
        fitted: FittedLightGBM | None = None,
        example: pd.DataFrame | None = None,
    ) -> None:
        """Keep a run with its plots (by file name), and with its model if one is given."""
        folder = self._folder / "runs" / f"{len(self._runs):03}"
        folder.mkdir(parents=True)
        for file, figure in figures.items():
            figure.savefig(folder / file, dpi=90)
        if fitted is not None and example is not None:
            save_native(fitted, folder / MODEL_FOLDER, example)
            _write_importance(fitted, folder / "importance.csv")
        where = str(folder.relative_to(self._folder))
        self._runs.append(RunRecord(name, _texts(params), dict(tags), dict(metrics), where))

    def add_to_bundle(self, within: str, fitted: FittedLightGBM, example: pd.DataFrame) -> None:
        """Keep the model that serves the horizon `within`. Raises ModelError if it cannot be loaded again."""
        folder = self._folder / BUNDLE_FOLDER / within
        save_native(fitted, folder, example)
        read_native(folder, list(example.columns))

    def add_order(self, rungs: Rungs) -> None:
        """Keep the trees of the order of eviction. Raises ModelError if they cannot be loaded again."""
        write_order(self._folder / BUNDLE_FOLDER, rungs)

    def finish(
        self,
        name: str,
        bundle: Bundle,
        *,
        params: Mapping[str, object],
        tags: Mapping[str, str],
        answer: Mapping[str, Any],
    ) -> Training:
        """Complete the training, and rename its folder to its id."""
        folder = self._folder / BUNDLE_FOLDER
        folder.mkdir(exist_ok=True)
        (folder / BUNDLE_FILE).write_text(bundle.to_json())
        body = {
            "format": _FORMAT,
            "name": name,
            "region": bundle.region,
            "params": _texts(params),
            "tags": dict(tags),
            "runs": [dataclasses.asdict(run) for run in self._runs],
            "answer": answer,
        }
        (self._folder / _FILE).write_text(json.dumps(body, indent=1))
        self._folder.rename(self._root / self._id)
        return read(self._root / self._id)

    def discard(self) -> None:
        """Delete what was written: the training failed."""
        shutil.rmtree(self._folder, ignore_errors=True)


def waiting(root: Path) -> list[Training]:
    """The complete trainings below `root`, the oldest first. Raises ModelError if one is damaged."""
    found = [path for path in root.glob(f"*/{_FILE}") if not path.parent.name.startswith(".")]
    return [read(path.parent) for path in sorted(found, key=lambda p: (p.stat().st_mtime, str(p)))]


def read(folder: Path) -> Training:
    """The training in `folder`. Raises ModelError if another version wrote it, or it is damaged."""
    try:
        raw: dict[str, Any] = strict_json.loads((folder / _FILE).read_bytes())
        if raw.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        runs = tuple(RunRecord(**run) for run in raw.pop("runs"))
        if not all(_RUN_FOLDER.fullmatch(run.folder) for run in runs):
            raise ValueError("a run's folder is elsewhere")
        return Training(folder=folder, runs=runs, **raw)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(
            f"{folder}: this training cannot be read ({error}); delete it and train again"
        ) from None


def _write_importance(fitted: FittedLightGBM, path: Path) -> None:
    if gains := fitted.importance():
        rows = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
        path.write_text("column,gain_share\n" + "".join(f"{name},{gain:.6g}\n" for name, gain in rows))


def _texts(params: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items()}
