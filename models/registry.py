"""MLflow's records: a run per training, a nested run per model and horizon, and the registered models.

A registered model is `cachecast-{region}-{horizon}`; its native file and the run's `bundle.json` are all that
is needed to score. Nothing of this package is pickled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pandas as pd

from features.errors import StaleInputError
from features.units import duration_label
from models.bundle import Bundle
from models.figures import calibration_figure
from models.learners import SKOPS_TRUSTED, Fitted, FittedLightGBM, FittedSklearn
from models.metrics import Quality
from models.mlflow_session import MlflowException, connect, infer_signature, mlflow, service_errors
from models.provenance import requirements
from models.scoring import ServedModel

CANDIDATE = "candidate"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """What a nested run keeps of a model that can be registered. `example`: a few rows of its matrix."""

    bundle: Bundle
    fitted: Fitted
    example: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A nested run: its id, and the URI of the model logged in it, if any."""

    run_id: str
    model_uri: str | None


def model_name(region: str, horizon_s: int) -> str:
    """The registered model's name."""
    return f"cachecast-{region}-{duration_label(horizon_s)}"


class Registry:
    """The MLflow store at `uri`: a server's URL, or `sqlite:///…` with a folder for files."""

    def __init__(self, uri: str, artifacts: str, experiment: str) -> None:
        """Connect. Raises ServiceError within about ten seconds if a server does not answer."""
        self.uri = uri
        self._client, self._experiment_id = connect(uri, artifacts, experiment)

    @contextmanager
    def training(self, name: str, *, params: Mapping[str, object], tags: Mapping[str, str]) -> Iterator[str]:
        """An open parent run; its id. It is marked failed if the block raises."""
        with service_errors(self.uri):
            run = mlflow.start_run(experiment_id=self._experiment_id, run_name=name, tags=dict(tags))
        status = "FAILED"
        try:
            with service_errors(self.uri):
                mlflow.log_params(dict(params))
            yield run.info.run_id
            status = "FINISHED"
        finally:
            with service_errors(self.uri):
                mlflow.end_run(status)

    def record(
        self,
        name: str,
        *,
        params: Mapping[str, object],
        tags: Mapping[str, str],
        quality: Quality | None,
        metrics: Mapping[str, float],
        model: TrainedModel | None = None,
    ) -> Recorded:
        """Write a nested run: figures on the test days if any, further `metrics`, and the model if given."""
        with (
            service_errors(self.uri),
            mlflow.start_run(
                experiment_id=self._experiment_id, run_name=name, nested=True, tags=dict(tags)
            ) as run,
        ):
            mlflow.log_params(dict(params))
            mlflow.log_metrics(dict(metrics))
            if quality is not None:
                mlflow.log_metrics({f"test_{k}": v for k, v in quality.numbers.items()})
                mlflow.log_figure(calibration_figure(name, quality), "calibration.png")
            uri = None if model is None else _log_model(model)
            return Recorded(run.info.run_id, uri)

    def register(self, bundle: Bundle, recorded: Recorded, alias: str = CANDIDATE) -> str:
        """Make a recorded model the newest version of its name and move `alias` to it; `name/version`."""
        if recorded.model_uri is None:
            raise ValueError(f"run {recorded.run_id} holds no model")
        name = model_name(bundle.region, bundle.horizon_s)
        with service_errors(self.uri):
            if not self._client.search_registered_models(f"name = '{name}'"):
                self._client.create_registered_model(name)
            version = self._client.create_model_version(
                name,
                recorded.model_uri,
                recorded.run_id,
                model_id=recorded.model_uri.removeprefix("models:/"),
            )
            self._client.set_registered_model_alias(name, alias, version.version)
        return f"{name}/{version.version}"

    def load(self, region: str, horizon_s: int, alias: str = CANDIDATE) -> ServedModel:
        """The model that `alias` points to. StaleInputError if there is none, ModelError, ServiceError."""
        name = model_name(region, horizon_s)
        missing = f"MLflow has no model {name}@{alias}; run `cachecast train` for this horizon"
        with service_errors(self.uri, missing):
            try:
                version = self._client.get_model_version_by_alias(name, alias)
            except MlflowException as error:
                if error.error_code == "INVALID_PARAMETER_VALUE":  # how MLflow says: no such alias
                    raise StaleInputError(missing) from None
                raise
            bundle = Bundle.from_json(mlflow.artifacts.load_text(f"runs:/{version.run_id}/bundle.json"))
            native = _load_native(bundle.flavour, f"models:/{name}/{version.version}")
        return ServedModel(bundle, native.payload(), f"{name}/{version.version}")


def _log_model(model: TrainedModel) -> str:
    mlflow.log_text(model.bundle.to_json(), "bundle.json")
    if gains := model.fitted.importance():
        rows = sorted(gains.items(), key=lambda item: (-item[1], item[0]))
        mlflow.log_text(
            "column,gain_share\n" + "".join(f"{name},{gain:.6g}\n" for name, gain in rows), "importance.csv"
        )
    signature = infer_signature(model.example, model.fitted.score(model.example))
    common = {
        "name": "model",
        "signature": signature,
        "input_example": model.example,
        "pip_requirements": requirements(model.fitted.flavour),
    }
    if isinstance(model.fitted, FittedLightGBM):
        return str(mlflow.lightgbm.log_model(model.fitted.booster, **common).model_uri)
    if isinstance(model.fitted, FittedSklearn):
        return str(
            mlflow.sklearn.log_model(
                model.fitted.model,
                **common,
                skops_trusted_types=SKOPS_TRUSTED,
                pyfunc_predict_fn="predict_proba",
            ).model_uri
        )
    raise TypeError(f"no MLflow flavour for {type(model.fitted).__name__}")


def _load_native(flavour: str, uri: str) -> Fitted:
    if flavour == "lightgbm":
        return FittedLightGBM(mlflow.lightgbm.load_model(uri))
    return FittedSklearn(mlflow.sklearn.load_model(uri))
