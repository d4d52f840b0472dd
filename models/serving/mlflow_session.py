"""MLflow with short timeouts, little logging, and cachecast's errors. Import mlflow only through here."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
import sqlalchemy.exc
import tenacity

with warnings.catch_warnings():  # MLflow's own type hints cause warnings
    warnings.simplefilter("ignore")
    import mlflow
    import mlflow.artifacts
    import mlflow.lightgbm
    import mlflow.pyfunc
    from mlflow.entities import Dataset, DatasetInput, Experiment, Metric, Param, Run, RunTag
    from mlflow.exceptions import MlflowException
    from mlflow.models import infer_signature
    from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
    from mlflow.tracking import MlflowClient

from features.errors import ServiceError, StaleInputError
from features.redaction import secrets_of, without_login, without_secrets

__all__ = [
    "Dataset",
    "DatasetInput",
    "Metric",
    "MlflowClient",
    "MlflowException",
    "MlflowUnavailable",
    "Param",
    "Run",
    "RunTag",
    "connect",
    "infer_signature",
    "mlflow",
    "patiently",
    "service_errors",
]

T = TypeVar("T")

_HEALTH_TIMEOUT_S = 8
_LONGEST_WAIT_S = 15
_SERVER_FAULT = 500
_NOT_FOUND = ErrorCode.Name(RESOURCE_DOES_NOT_EXIST)


class MlflowUnavailable(ServiceError):
    """MLflow does not answer, or fails; a later try may succeed."""


def connect(uri: str, artifacts: str, experiment: str) -> tuple[MlflowClient, str]:
    """Return a client and the id of `experiment`, which is created if needed.

    MLflow's global tracking URI becomes `uri`. `artifacts`: a folder for the files of a new experiment, used
    with a SQLite `uri` only. Raises ServiceError within about ten seconds if a server does not answer.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with service_errors(uri):
        if uri.startswith(("http://", "https://")):
            requests.get(f"{uri.rstrip('/')}/health", timeout=_HEALTH_TIMEOUT_S).raise_for_status()
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        found: Experiment | None = client.get_experiment_by_name(experiment)
        if found is not None:
            return client, str(found.experiment_id)
        folder = None if uri.startswith(("http://", "https://")) else Path(artifacts).resolve().as_uri()
        return client, str(client.create_experiment(experiment, artifact_location=folder))


@contextlib.contextmanager
def service_errors(uri: str, missing: str | None = None) -> Iterator[None]:
    """Turn MLflow's errors into ServiceError, and "does not exist" into StaleInputError(`missing`)."""
    try:
        yield
    except MlflowException as error:
        if missing is not None and error.error_code == _NOT_FOUND:
            raise StaleInputError(missing) from None
        unavailable = error.get_http_status_code() >= _SERVER_FAULT  # type: ignore[no-untyped-call]
        kind = MlflowUnavailable if unavailable else ServiceError
        message = without_secrets(error.message, *_secrets(uri))
        raise kind(f"MLflow at {without_login(uri)}: {message}") from None
    except (requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        message = without_secrets(str(error), *_secrets(uri))
        raise MlflowUnavailable(
            f"MLflow at {without_login(uri)} does not answer: {message}; is it running?"
        ) from None


def patiently(work: Callable[[], T], *, patience_s: float) -> T:
    """Call `work` and return its result; while MLflow is unavailable, retry for `patience_s` with backoff.

    Raises the error of the last try. `work` must be safe to repeat.
    """
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(MlflowUnavailable),
        wait=tenacity.wait_exponential(multiplier=1, max=_LONGEST_WAIT_S),
        stop=tenacity.stop_before_delay(patience_s),
        reraise=True,
    )
    return tries(work)


def _secrets(uri: str) -> tuple[str, ...]:
    """The credentials of this process: in the URI, or in the variables that MLflow reads."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    token = os.environ.get("MLFLOW_TRACKING_TOKEN", "")
    return (*secrets_of(uri), password, token, f"{user}:{password}" if password else "")
