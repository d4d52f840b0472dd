"""The registered models: one bundle per region, `cachecast-{region}`, whose versions hold all its horizons.

The alias `candidate` is the newest training, `champion` the one that won in replay
(`models.evaluation.promotion`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from features.errors import StaleInputError
from features.times import parse_as_of
from models.serving.bundle import Bundle
from models.serving.mlflow_session import Metric, MlflowException, connect, mlflow, service_errors
from models.serving.native import load_native
from models.serving.scoring import ServedModels
from models.serving.spool import BUNDLE_FILE, BUNDLE_FOLDER

CANDIDATE, CHAMPION = "candidate", "champion"
UNTIL_TAG = "until"
"""Of a version: the moment of its training, as 2026-03-01T00:00:00Z."""
MAY_PUSH_TAG = "may_push"
"""Of a version and its run: `yes`, or `no: ` and why; for people, as the alias decides."""


def model_name(region: str) -> str:
    """The registered model's name."""
    return f"cachecast-{region}"


class Registry:
    """The MLflow store at `uri`: a server's URL, or `sqlite:///…` with a folder for files."""

    def __init__(self, uri: str, artifacts: str, experiment: str) -> None:
        """Connect. Raises ServiceError within about ten seconds if a server does not answer."""
        self.uri = uri
        self._client, self._experiment_id = connect(uri, artifacts, experiment)

    def version_at(self, region: str, alias: str) -> str | None:
        """The version that `alias` points to, as `cachecast-emea/3`; None if there is none."""
        name = model_name(region)
        with service_errors(self.uri):
            if not self._client.search_registered_models(f"name = '{name}'"):
                return None
            try:
                found = self._client.get_model_version_by_alias(name, alias)
            except MlflowException as error:
                if error.error_code == "INVALID_PARAMETER_VALUE":  # how MLflow says: no such alias
                    return None
                raise
        return f"{name}/{found.version}"

    def point(self, alias: str, version: str, *, tags: Mapping[str, str]) -> None:
        """Move `alias` to `version` (`name/number`) and tag it. Raises StaleInputError if it is gone."""
        name, _, number = version.rpartition("/")
        with service_errors(self.uri, f"MLflow has no model version {version}"):
            self._client.get_model_version(name, number)
            self.tag(version, tags)
            self._client.set_registered_model_alias(name, alias, number)

    def unpoint(self, region: str, alias: str) -> None:
        """Take `alias` away: no version has it."""
        with service_errors(self.uri):
            self._client.delete_registered_model_alias(model_name(region), alias)

    def tag(self, version: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version, and of the run that trained it. Raises StaleInputError if it is gone."""
        name, _, number = version.rpartition("/")
        with service_errors(self.uri, f"MLflow has no model version {version}"):
            run_id = str(self._client.get_model_version(name, number).run_id)
            for key, value in tags.items():
                self._client.set_model_version_tag(name, number, key, value)
                self._client.set_tag(run_id, key, value)

    def log(self, version: str, metrics: Mapping[str, float]) -> None:
        """Add figures to the run that trained a version. Raises StaleInputError if it is gone."""
        name, _, number = version.rpartition("/")
        at_ms = int(time.time() * 1000)
        logged = [Metric(key, value, at_ms, 0) for key, value in metrics.items()]
        with service_errors(self.uri, f"MLflow has no model version {version}"):
            run_id = self._client.get_model_version(name, number).run_id
            self._client.log_batch(str(run_id), metrics=logged)

    def until_s(self, version: str) -> int:
        """The moment of a version's training, in seconds since 1970. Raises StaleInputError if it is gone."""
        name, _, number = version.rpartition("/")
        with service_errors(self.uri, f"MLflow has no model version {version}"):
            return parse_as_of(self._client.get_model_version(name, number).tags[UNTIL_TAG])

    def load(self, region: str, aliases: Sequence[str]) -> ServedModels:
        """The models at the first of `aliases` that exists.

        Raises StaleInputError if none does, ModelError if they cannot be read, ServiceError.
        """
        for alias in aliases:
            if (version := self.version_at(region, alias)) is not None:
                return self.load_version(version)
        wanted = " or ".join(f"{model_name(region)}@{alias}" for alias in aliases)
        raise StaleInputError(
            f"MLflow has no model {wanted}; train, evaluate and promote one "
            "([mlflow] serve names the aliases that may serve)"
        )

    def load_version(self, version: str) -> ServedModels:
        """The models of a version (`name/number`). Raises as `load`."""
        name, _, number = version.rpartition("/")
        missing = f"MLflow has no model version {version}, or its files are gone; train again"
        with tempfile.TemporaryDirectory() as scratch:
            with service_errors(self.uri, missing):
                run_id = self._client.get_model_version(name, number).run_id
                mlflow.artifacts.download_artifacts(
                    run_id=run_id, artifact_path=BUNDLE_FOLDER, dst_path=scratch, tracking_uri=self.uri
                )
            folder = Path(scratch) / BUNDLE_FOLDER
            if not (folder / BUNDLE_FILE).is_file():
                raise StaleInputError(missing)
            bundle = Bundle.from_json((folder / BUNDLE_FILE).read_bytes())
            payloads = {
                one.horizon_s: load_native(one.flavour, folder / one.within).payload()
                for one in bundle.models
            }
        return ServedModels(bundle, payloads, version)
