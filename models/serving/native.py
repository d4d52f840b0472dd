"""Models as folders in MLflow's native flavours: anyone with MLflow loads them without this package."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from features.errors import ModelError
from models.learning.learners import SKOPS_TRUSTED, Fitted, FittedLightGBM, FittedSklearn
from models.serving.mlflow_session import MlflowException, infer_signature, mlflow
from models.serving.provenance import requirements


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
            skops_trusted_types=SKOPS_TRUSTED,
            pyfunc_predict_fn="predict_proba",
        )
    else:
        raise TypeError(f"no MLflow flavour for {type(fitted).__name__}")


def load_native(flavour: str, folder: Path) -> Fitted:
    """The model in `folder`. Raises ModelError if it cannot be read."""
    try:
        if flavour == "lightgbm":
            return FittedLightGBM(mlflow.lightgbm.load_model(folder.as_uri()))
        return FittedSklearn(mlflow.sklearn.load_model(folder.as_uri()))
    except (MlflowException, OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(f"the model in {folder.name} cannot be read ({error}); train again") from None
