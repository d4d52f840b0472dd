"""The configured model registry."""

from __future__ import annotations

from jobs.ground.settings.tree import MlflowSettings
from models.serving.mlflow_session import patiently
from models.serving.registry import Registry


def registry(mlflow: MlflowSettings) -> Registry:
    """The registry at the configured MLflow. Raises ServiceError if its server does not answer."""
    return Registry(mlflow.uri, mlflow.artifacts, mlflow.experiment)


def awaited_registry(mlflow: MlflowSettings) -> Registry:
    """The same, tried again for `patience` seconds while the server is unavailable."""
    return patiently(lambda: registry(mlflow), patience_s=mlflow.patience)
