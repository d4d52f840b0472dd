"""Names of a region's models in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from features.errors import StaleInputError

CANDIDATE = "candidate"
"""The alias of the newest training."""


def model_name(region: str) -> str:
    """The registered model's name."""
    return f"cachecast-{region}"


def no_model(region: str, aliases: Sequence[str]) -> StaleInputError:
    """The error that no model of `region` has one of `aliases`."""
    wanted = " or ".join(f"{model_name(region)}@{alias}" for alias in aliases)
    if CANDIDATE in aliases:
        remedy = "run `cachecast train`, which makes the candidate"
    else:
        remedy = "train, evaluate and promote one ([mlflow] serve names the aliases that may serve)"
    return StaleInputError(f"MLflow has no model {wanted}; {remedy}")
