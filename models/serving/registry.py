"""The registered models: one bundle per region, `cachecast-{region}`, whose versions hold all its horizons.

The alias `candidate` is the newest training, `champion` the one whose plans won in replay, and `steward` the
one whose order of eviction did (`models.evaluation.promotion`). Whoever reaches MLflow can move an alias and
register versions, so the last two count only together with our own record of promotions (`Named`).
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from features.errors import ModelError, StaleInputError
from features.times import parse_as_of
from models.serving.bundle import Bundle
from models.serving.bundle_files import (
    BUNDLE_FOLDER,
    bundle_digest,
    check_listing,
    read_bundle,
    read_order,
    relative,
)
from models.serving.mlflow_session import Metric, MlflowException, Run, connect, mlflow, service_errors
from models.serving.names import CHAMPION, Named, model_name, no_model
from models.serving.scoring import ServedModels

UNTIL_TAG = "until"
"""Of a version: the moment of its training, as 2026-03-01T00:00:00Z."""
MAY_PUSH_TAG, MAY_EVICT_TAG = "may_push", "may_evict"
"""Of a version and its run: `yes`, or `no: ` and why; for people, as the aliases decide."""

DIGEST_PARAM = "bundle_sha256"
"""Of the run that trained a version: the digest of the bundle's files."""


class Vouched(NamedTuple):
    """A bundle without its models, and the digest of its files."""

    bundle: Bundle
    digest: str


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
            until = self._client.get_model_version(name, number).tags.get(UNTIL_TAG)
        if until is None:
            raise StaleInputError(
                f"{version} in MLflow has no tag {UNTIL_TAG!r}: train did not write it; train again"
            )
        return parse_as_of(until)

    def confirmed(self, region: str, alias: str, named: Named | None) -> Named | None:
        """What our record of promotions names for `alias`, if the alias points to it; None if both are empty.

        Raises ModelError if they differ, or the record has no digest.
        """
        version = self.version_at(region, alias)
        if version != (None if named is None else named.version):
            raise ModelError(
                f"the alias {alias!r} of {model_name(region)} in MLflow points to {version or 'no version'}, "
                f"but the table promotions names {'none' if named is None else named.version}, so neither "
                "acts: find out who moved it, then `cachecast promote --rollback` puts it back"
            )
        if named is not None and named.digest is None:
            raise ModelError(
                f"the table promotions has no digest of {named.version}, which an older cachecast promoted: "
                "run `cachecast promote`, which keeps it"
            )
        return named

    def load(self, region: str, aliases: Sequence[str], champion: Named | None = None) -> ServedModels:
        """The models at the first of `aliases` that exists; CHAMPION counts if it is `champion`.

        Raises StaleInputError if none does, ModelError if they cannot be read, or see `confirmed`, and
        ServiceError.
        """
        for alias in aliases:
            if alias == CHAMPION:
                if (named := self.confirmed(region, alias, champion)) is not None:
                    return self.load_version(named.version, digest=named.digest)
            elif (version := self.version_at(region, alias)) is not None:
                return self.load_version(version)
        raise no_model(region, aliases)

    def load_version(self, version: str, *, digest: str | None = None) -> ServedModels:
        """The models of a version (`name/number`), if its files are those of `digest`; raises as `files`."""
        with self.files(version, digest=digest) as (folder, found):
            return ServedModels(*read_bundle(folder), version, found)

    @contextlib.contextmanager
    def files(self, version: str, *, digest: str | None = None) -> Iterator[tuple[Path, str]]:
        """A copy of a version's files for a block, and their digest, which must be `digest`.

        None: the one that its training wrote into MLflow. Raises StaleInputError if the version is gone,
        ModelError if its files are others, ServiceError.
        """
        run = self._run(version)
        kept = digest or run.data.params.get(DIGEST_PARAM)
        if kept is None:
            raise ModelError(
                f"MLflow keeps no digest of the files of {version}, as an older cachecast trained it: run "
                "`cachecast promote`, which keeps one of the champion, or train again"
            )
        with self._bundle(version, run.info.run_id) as folder:
            found = bundle_digest(folder)
            _check_digest(version, found, kept)
            yield folder, found

    def vouch(self, version: str, *, digest: str | None = None) -> Vouched:
        """Make sure that a version can be loaded; keep its files' digest if its training kept none.

        `digest`: the one on our record, None if there is none. Raises as `files`.
        """
        run = self._run(version)
        with self._bundle(version, run.info.run_id) as folder:
            found = bundle_digest(folder)
            _check_digest(version, found, digest or run.data.params.get(DIGEST_PARAM, found))
            bundle, _ = read_bundle(folder)
            if bundle.order is not None:
                read_order(folder, bundle.order)
        if DIGEST_PARAM not in run.data.params:
            with service_errors(self.uri):
                self._client.log_param(run.info.run_id, DIGEST_PARAM, found)
        return Vouched(bundle, found)

    def _run(self, version: str) -> Run:
        """The run that trained a version. Raises StaleInputError if either is gone."""
        name, _, number = version.rpartition("/")
        with service_errors(self.uri, _missing(version)):
            return self._client.get_run(str(self._client.get_model_version(name, number).run_id))

    @contextlib.contextmanager
    def _bundle(self, version: str, run_id: str) -> Iterator[Path]:
        """A copy of a version's files, whose names and sizes were checked before they were fetched."""
        with tempfile.TemporaryDirectory() as scratch:
            with service_errors(self.uri, _missing(version)):
                sizes = self._listing(run_id)
            if not sizes:
                raise StaleInputError(_missing(version))
            check_listing(sizes)
            with service_errors(self.uri, _missing(version)):
                mlflow.artifacts.download_artifacts(
                    run_id=run_id, artifact_path=BUNDLE_FOLDER, dst_path=scratch, tracking_uri=self.uri
                )
            yield Path(scratch) / BUNDLE_FOLDER

    def _listing(self, run_id: str) -> dict[str, int]:
        """Sizes of a run's files in the bundle and the folders in it; a folder deeper counts as a file."""
        sizes: dict[str, int] = {}
        for top in self._client.list_artifacts(run_id, BUNDLE_FOLDER):
            inside = self._client.list_artifacts(run_id, top.path) if top.is_dir else [top]
            sizes |= {relative(one.path): int(one.file_size or 0) for one in inside}
        return sizes


def _missing(version: str) -> str:
    return f"MLflow has no model version {version}, or its files are gone; train again"


def _check_digest(version: str, found: str, kept: str) -> None:
    if found != kept:
        raise ModelError(
            f"the files of {version} in MLflow are not those that were trained: digest {found[:12]}…, "
            f"not {kept[:12]}…; find out who changed them, then train again or `cachecast promote --rollback`"
        )
