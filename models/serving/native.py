"""Models as folders in MLflow's native flavours: anyone with MLflow loads them without this package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from features.errors import ModelError
from models.learning.baselines import RECENCY
from models.learning.learners import Fitted, FittedLightGBM, FittedSklearn
from models.learning.lightgbm_text import checked_text
from models.learning.skops_file import TRUSTED, check_skops
from models.learning.stored import load_payload
from models.serving.mlflow_session import infer_signature, mlflow
from models.serving.provenance import requirements

MODEL_FILES = {"lightgbm": "model.lgb", "sklearn": "model.skops"}
"""By flavour: the one file that is read of a model's folder. MLmodel, which could name another, is not."""


def save_native(fitted: Fitted, folder: Path, example: pd.DataFrame) -> None:
    """Write `fitted` to `folder` with signature and input example (a few rows of its matrix)."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    needed = requirements(fitted.flavour)
    if isinstance(fitted, FittedLightGBM):
        mlflow.lightgbm.save_model(
            fitted.booster,
            folder,
            signature=infer_signature(example, fitted.score(example)),
            input_example=example,
            pip_requirements=needed,
        )
    elif isinstance(fitted, FittedSklearn):
        mlflow.sklearn.save_model(
            fitted.model,
            folder,
            signature=infer_signature(example, fitted.model.predict_proba(example)),
            input_example=example,
            pip_requirements=needed,
            skops_trusted_types=TRUSTED,
            pyfunc_predict_fn="predict_proba",
        )
    else:
        raise TypeError(f"no MLflow flavour for {type(fitted).__name__}")


def read_native(flavour: str, folder: Path, columns: Sequence[str]) -> bytes:
    """The model of `columns` in `folder`, in its library's format, for `stored.load_payload`.

    Only the flavour's own file is read, and only after its content was checked: no code of it runs. Recency
    has no file, but needs its column. Raises ModelError.
    """
    if flavour == RECENCY and "recency_s" in columns:
        return b""
    if flavour not in MODEL_FILES:
        raise ModelError(f"unknown model flavour {flavour[:40]!r}; train again with this version")
    path = folder / MODEL_FILES[flavour]
    try:
        payload = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{folder.name}/{path.name} cannot be read ({error.strerror}); train again"
        ) from None
    try:
        return _checked(flavour, payload, columns)
    except ModelError as error:
        raise ModelError(f"{folder.name}/{path.name}: {error}; train again") from None


def _checked(flavour: str, payload: bytes, columns: Sequence[str]) -> bytes:
    """`payload`, or what of it is needed, once it has scored a row."""
    if flavour == "lightgbm":
        payload = checked_text(payload.decode("ascii", "replace"), columns).encode()
    else:
        check_skops(payload, columns)
    row = pd.DataFrame(np.zeros((1, len(columns)), np.float32), columns=list(columns))
    try:
        score = load_payload(flavour, payload).score(row)
    except Exception as error:  # libraries raise anything for a model that lacks a part
        raise ModelError(f"the model scores nothing ({type(error).__name__}: {error})") from error
    if score.shape != (1,) or not 0 <= score[0] <= 1:
        raise ModelError(f"the model scores {score.tolist()!r:.40}, which is no probability")
    return payload
