"""MLflow with short timeouts, little logging, and cachecast's errors. Import mlflow only through here."""

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
os.environ.setdefault("MLFLOW_ALLOW_HTTP_REDIRECTS", "false")
os.environ.setdefault("MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD", "false")
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

import requests
import sqlalchemy.exc
import tenacity
from google.protobuf.json_format import ParseError

with warnings.catch_warnings():  # MLflow's own type hints cause warnings
    warnings.simplefilter("ignore")
    import mlflow
    import mlflow.artifacts
    import mlflow.entities
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_ALREADY_EXISTS, RESOURCE_DOES_NOT_EXIST, ErrorCode
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    from mlflow.tracking import MlflowClient
    from mlflow.utils import request_utils
    from mlflow.utils.credentials import get_default_host_creds

from features.common import deadline
from features.common.errors import ServiceError, StaleInputError, secrets_of, without_login, without_secrets

__all__ = ["MlflowUnavailable", "check_place", "connect", "in_time", "patiently", "service_errors"]
__all__ += ["ArtifactRepository", "MlflowClient", "MlflowException", "get_artifact_repository", "mlflow"]

T = TypeVar("T")

_HEALTH_TIMEOUT_S = 8
_LONGEST_WAIT_S = 15
_CALL_S = 400.0
FILES_S = 3600.0
"""Longest call, and longest transfer of a bundle, s; MLflow itself only bounds each silence."""
_OWN_LOGIN = ("s3", "gs", "wasbs", "abfss", "hdfs")
"""Stores of files with a login of their own: none gets MLflow's."""
_SERVER_FAULT = 500
_NOT_FOUND = ErrorCode.Name(RESOURCE_DOES_NOT_EXIST)
_SAME_TIME = ("IntegrityError", "UniqueViolation")
"""Errors of MLflow's database where two made the same row at the same time."""
_UNREADABLE = (ParseError, LookupError, ValueError, TypeError, AttributeError, RecursionError)
"""MLflow's client believes that every answer is one of MLflow's."""


class _Adapter(deadline.Adapter, request_utils.TCPKeepAliveHTTPAdapter):
    """MLflow's own connections, with answers that end."""


request_utils.TCPKeepAliveHTTPAdapter = _Adapter  # type: ignore[misc]  # MLflow's sessions take this one


class MlflowUnavailable(ServiceError):
    """MLflow does not answer, or fails; a later try may succeed."""


def connect(uri: str, artifacts: str, experiment: str) -> tuple[MlflowClient, str]:
    """Return a client and the id of `experiment`, which is created if needed.

    MLflow's global tracking URI becomes `uri`. `artifacts`: a folder for the files of a new experiment, used
    with a SQLite `uri` only. Raises ServiceError, within about ten seconds if a server does not answer, and
    if the experiment was deleted in MLflow.
    """
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with service_errors(uri):
        if uri.startswith(("http://", "https://")):
            in_time(lambda: _check_health(uri), within_s=2 * _HEALTH_TIMEOUT_S)
        mlflow.set_tracking_uri(uri)
        mlflow.set_registry_uri(uri)
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        if uri.startswith(("http://", "https://")):
            client = cast("MlflowClient", _InTime(client))
        known = client.get_experiment_by_name(experiment)
        if known is not None:
            _check_active(uri, known)
            return client, str(known.experiment_id)
        folder = None if uri.startswith(("http://", "https://")) else Path(artifacts).resolve().as_uri()
        return client, str(client.create_experiment(experiment, artifact_location=folder))


def in_time(work: Callable[[], T], *, within_s: float) -> T:
    """Return the result of `work`, called in another thread, which is abandoned if it takes longer.

    Raises what `work` raises, and TimeoutError after `within_s` seconds.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised by who waits
            result.set_exception(error)

    threading.Thread(target=run, name="MLflow", daemon=True).start()
    try:
        return result.result(within_s)
    except TimeoutError:
        raise TimeoutError(f"no end of an answer in {within_s:.0f} s") from None


class _InTime:
    """A client of a server whose calls all end in time."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call, within_s = getattr(self._client, name), FILES_S if "artifacts" in name else _CALL_S
        return lambda *args, **options: in_time(lambda: call(*args, **options), within_s=within_s)


def check_place(uri: str, artifact_uri: str) -> None:
    """Raise ServiceError if `artifact_uri` is no place where the MLflow at `uri` may keep a run's files.

    A forged server can name any host, to which MLflow's client would send the login, or any local folder.
    """
    if not uri.startswith(("http://", "https://")):
        return
    place = urlsplit(artifact_uri)
    is_its_own = place.scheme == "mlflow-artifacts" and place.netloc in ("", urlsplit(uri).netloc)
    if not is_its_own and place.scheme not in _OWN_LOGIN:
        raise ServiceError(
            f"MLflow at {without_login(uri)} names {without_login(artifact_uri)[:100]} as the place of a "
            "run's files: only its own store of artifacts (--serve-artifacts) and object stores are used"
        )


def _check_active(uri: str, experiment: mlflow.entities.Experiment) -> None:
    if experiment.lifecycle_stage != "active":
        raise ServiceError(
            f"MLflow at {without_login(uri)}: its experiment {str(experiment.name)[:100]!r} was deleted; "
            f"restore it (`mlflow experiments restore --experiment-id {experiment.experiment_id}`), or name "
            "another ([mlflow] experiment)"
        )


def _check_health(uri: str) -> None:
    """Ask as MLflow's own client would. Raises MlflowException, RequestException, OSError."""
    login = get_default_host_creds(uri)  # type: ignore[no-untyped-call]
    with requests.get(
        f"{uri.rstrip('/')}/health",
        timeout=_HEALTH_TIMEOUT_S,
        stream=True,
        allow_redirects=False,
        verify=login.verify,
        cert=login.client_cert_path,
    ) as answer:
        answer.raise_for_status()


@contextlib.contextmanager
def service_errors(uri: str, missing: str | None = None) -> Iterator[None]:
    """Turn MLflow's errors into ServiceError, and "does not exist" into StaleInputError(`missing`)."""
    try:
        yield
    except MlflowException as error:
        if missing is not None and error.error_code == _NOT_FOUND:
            raise StaleInputError(missing) from None
        kind = MlflowUnavailable if _may_pass(error) else ServiceError
        message = without_secrets(error.message, *_secrets(uri))
        raise kind(f"MLflow at {without_login(uri)}: {message}") from None
    except (requests.RequestException, sqlalchemy.exc.SQLAlchemyError, OSError) as error:
        message = without_secrets(str(error), *_secrets(uri))
        if isinstance(error, requests.HTTPError) and error.response.status_code < _SERVER_FAULT:
            raise ServiceError(f"MLflow at {without_login(uri)} refuses: {message}") from None
        raise MlflowUnavailable(
            f"MLflow at {without_login(uri)} does not answer: {message}; is it running?"
        ) from None
    except _UNREADABLE as error:
        raise ServiceError(
            f"MLflow at {without_login(uri)} gives an answer that cannot be read ({type(error).__name__}); "
            "is [mlflow] uri that of an MLflow server?"
        ) from None


def _may_pass(error: MlflowException) -> bool:
    """Whether a later try may succeed: the server fails, or another one made the same thing just now."""
    if error.error_code == ErrorCode.Name(RESOURCE_ALREADY_EXISTS):
        return True
    failed: bool = error.get_http_status_code() >= _SERVER_FAULT  # type: ignore[no-untyped-call]
    return failed or any(words in error.message for words in _SAME_TIME)


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
