"""Names of a region's models in MLflow."""

import dataclasses
import re
from collections.abc import Sequence

from features.common.errors import ServiceError, StaleInputError

CANDIDATE, CHAMPION, STEWARD = "candidate", "champion", "steward"
"""Aliases: of the newest training, of the promoted plans, and of the promoted order of eviction."""


@dataclasses.dataclass(frozen=True)
class ModelVersion:
    """A version in MLflow, for example `cachecast-emea/3`, and the digest of its files.

    The digest is from our table promotions, if the version is to act, else from the table trainings. None:
    the tables do not have it, and nothing of the version is read.
    """

    version: str
    digest: str | None


def model_name(region: str) -> str:
    """The registered model's name."""
    return f"cachecast-{region}"


def version_name(model: str, number: object) -> str:
    """A version as tables name it, `cachecast-emea/3`. Raises ServiceError if MLflow's `number` is none."""
    if not re.fullmatch("[0-9]{1,18}", str(number)):
        raise ServiceError(f"MLflow gives {str(number)[:40]!r} as the version of {model}, which is no number")
    return f"{model}/{number}"


def no_model(region: str, aliases: Sequence[str]) -> StaleInputError:
    """The error that no model of `region` has one of `aliases`."""
    names = " or ".join(f"{model_name(region)}@{alias}" for alias in aliases)
    if CANDIDATE in aliases:
        remedy = "run `cachecast train`, which makes the candidate"
    else:
        remedy = "train, evaluate and promote one ([mlflow] serve names the aliases that may serve)"
    return StaleInputError(f"MLflow has no model {names}; {remedy}")
