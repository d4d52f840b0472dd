"""MLflow made quiet, quick to give up, and speaking this house's errors. Import mlflow only through here."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
import sqlalchemy.exc

with warnings.catch_warnings():  # its own type hints make it warn about itself
    warnings.simplefilter("ignore")
    import mlflow
    import mlflow.artifacts
    import mlflow.lightgbm
    import mlflow.pyfunc
    import mlflow.sklearn
    from mlflow.entities import Experiment
    from mlflow.exceptions import MlflowException
    from mlflow.models import infer_signature
    from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
    from mlflow.tracking import MlflowClient

from features.errors import ServiceError, StaleInputError

__all__ = ["MlflowException", "connect", "infer_signature", "mlflow", "service_errors"]

_HEALTH_TIMEOUT_S = 8
_NOT_FOUND = ErrorCode.Name(RESOURCE_DOES_NOT_EXIST)


def connect(uri: str, artifacts: str, experiment: str) -> tuple[MlflowClient, str]:
    """A client, and the id of `experiment`, made if needed. MLflow's global tracking URI becomes `uri`.

    `artifacts`: a folder for the files of a new experiment, used with a SQLite `uri` only. Raises
    ServiceError within about ten seconds if a server does not answer.
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
    """Turn what MLflow raises into ServiceError; what does not exist into StaleInputError(`missing`)."""
    try:
        yield
    except MlflowException as error:
        if missing is not None and error.error_code == _NOT_FOUND:
            raise StaleInputError(missing) from None
        raise ServiceError(f"MLflow at {_shown(uri)}: {error.message}") from error
    except (requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        raise ServiceError(f"MLflow at {_shown(uri)} does not answer: {error}; is it running?") from error


def _shown(uri: str) -> str:
    """`uri` without user and password."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
