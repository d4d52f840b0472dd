"""A model as a folder in MLflow's LightGBM flavour: anyone with MLflow loads it without this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from features.errors import ModelError
from models.learning.learners import FittedLightGBM
from models.learning.lightgbm_text import checked_text
from models.serving.mlflow_session import infer_signature, mlflow
from models.serving.provenance import requirements

MODEL_FILE = "model.lgb"
"""The one file that is read of a model's folder. MLmodel, which could name another, is not."""


def save_native(fitted: FittedLightGBM, folder: Path, example: pd.DataFrame) -> None:
    """Write `fitted` to `folder` with signature and input example (a few rows of its matrix)."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    mlflow.lightgbm.save_model(
        fitted.booster,
        folder,
        signature=infer_signature(example, fitted.score(example)),
        input_example=example,
        pip_requirements=requirements(),
    )


def read_native(folder: Path, columns: Sequence[str]) -> bytes:
    """The model of `columns` in `folder`, for `FittedLightGBM.of_payload`. Raises ModelError.

    Only the model's own file is read, and only after its content was checked: no code of it runs.
    """
    path = folder / MODEL_FILE
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{folder.name}/{path.name} cannot be read ({error.strerror}); train again"
        ) from None
    try:
        return _checked(payload, columns)
    except ModelError as error:
        raise ModelError(f"{folder.name}/{path.name}: {error}; train again") from None


def _checked(payload: bytes, columns: Sequence[str]) -> bytes:
    """What is needed of `payload`, once it has scored a row."""
    payload = checked_text(payload.decode("ascii", "replace"), columns).encode()
    row = pd.DataFrame(np.zeros((1, len(columns)), np.float32), columns=list(columns))
    try:
        score = FittedLightGBM.of_payload(payload).score(row)
    except Exception as error:  # libraries raise anything for a model that lacks a part
        raise ModelError(f"the model scores nothing ({type(error).__name__}: {error})") from error
    if score.shape != (1,) or not 0 <= score[0] <= 1:
        raise ModelError(f"the model scores {score.tolist()!r:.40}, which is no probability")
    return payload
