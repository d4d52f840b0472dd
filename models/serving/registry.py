"""The registered models: one bundle per region, `cachecast-{region}`, whose versions hold all its horizons.

`load_order` takes the order of eviction for a steward from here.

The alias `candidate` is the newest training, `champion` the one whose plans won in replay, and `steward` the
one whose order of eviction did (`models.evaluation.promotion`). Whoever reaches MLflow can move an alias and
register versions, so the last two count only together with our own record of promotions, and the files of
each version only with the digest that its training kept in the table trainings (`ModelVersion`).
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from features.common.errors import ModelError, StaleInputError
from models.serving.bundle import Bundle, RegionModels
from models.serving.bundle_files import (
    BUNDLE_FOLDER,
    ServedOrder,
    bundle_digest,
    check_listing,
    read_bundle,
    read_order,
    served_order,
)
from models.serving.mlflow_session import (
    FILES_S,
    ArtifactRepository,
    MlflowException,
    check_place,
    connect,
    get_artifact_repository,
    in_time,
    service_errors,
)
from models.serving.versions import CHAMPION, STEWARD, ModelVersion, model_name, no_model, version_name

UNTIL_TAG = "until"
"""Of a version: the moment of its training, for example 2026-03-01T00:00:00Z; for people."""
MODEL_TAG = "model_id"
"""Of a version: the model in MLflow that it registers; figures of runs are linked to that."""
MAY_PUSH_TAG, MAY_EVICT_TAG = "may_push", "may_evict"
"""Of a version: `yes`, or `no: ` and why; for people, as the aliases decide."""
_MOST_CHARS, _MOST_SECTION_CHARS = 4900, 600
"""Of a description in MLflow's databases, which has 5000, and of a section of it."""


class Registry:
    """The MLflow store at `uri`: a server's URL, or `sqlite:///…` with a folder for files."""

    def __init__(self, uri: str, artifacts: str, experiment: str) -> None:
        """Connect. Raises ServiceError within about ten seconds if a server does not answer."""
        self.uri = uri
        self._client, _ = connect(uri, artifacts, experiment)

    def version_at(self, region: str, alias: str) -> str | None:
        """The version that `alias` points to, as `cachecast-emea/3`; None if there is none."""
        name = model_name(region)
        with service_errors(self.uri):
            if not self._client.search_registered_models(f"name = '{name}'"):
                return None
            try:
                version = self._client.get_model_version_by_alias(name, alias)
            except MlflowException as error:
                if error.error_code == "INVALID_PARAMETER_VALUE":  # how MLflow says: no such alias
                    return None
                raise
        return version_name(name, version.version)

    def point(self, alias: str, version: str) -> None:
        """Move `alias` to `version` (`name/number`). Raises StaleInputError if there is none."""
        with self._version(version) as (name, number):
            self._client.set_registered_model_alias(name, alias, number)

    def unpoint(self, region: str, alias: str) -> None:
        """Remove `alias` from the region's models."""
        with service_errors(self.uri):
            self._client.delete_registered_model_alias(model_name(region), alias)

    def tag(self, version: str, tags: Mapping[str, str]) -> None:
        """Set tags of a version and of its model. Raises StaleInputError if there is no such version."""
        with self._version(version) as (name, number):
            model_id = self._client.get_model_version(name, number).tags.get(MODEL_TAG)
            for key, value in tags.items():
                self._client.set_model_version_tag(name, number, key, value)
            if model_id:
                self._client.set_logged_model_tags(model_id, dict(tags))

    @contextlib.contextmanager
    def _version(self, version: str) -> Iterator[tuple[str, str]]:
        """Name and number of a version, for calls to MLflow. Raises StaleInputError if it is not there."""
        name, _, number = version.rpartition("/")
        with service_errors(self.uri, _missing(version)):
            yield name, number

    def has(self, version: str) -> bool:
        """Whether MLflow has the version: people delete old ones, and a new MLflow has none."""
        try:
            self.model_id(version)
        except StaleInputError:
            return False
        return True

    def model_id(self, version: str) -> str | None:
        """The id of the version's model in MLflow, which figures of runs are linked to; None if it has none.

        Raises StaleInputError if there is no such version.
        """
        with self._version(version) as (name, number):
            return self._client.get_model_version(name, number).tags.get(MODEL_TAG)

    def describe(self, version: str, heading: str, body: str) -> None:
        """Add a section to a version's card, or replace the one so headed. Raises StaleInputError."""
        with self._version(version) as (name, number):
            known = str(self._client.get_model_version(name, number).description or "")
            self._client.update_model_version(name, number, with_section(known, heading, body))

    def confirmed(self, region: str, alias: str, named: ModelVersion | None) -> ModelVersion | None:
        """The version in our table promotions for `alias`, if the alias points to it; None if both are empty.

        Raises ModelError if they differ.
        """
        version = self.version_at(region, alias)
        if version != (None if named is None else named.version):
            raise ModelError(
                f"the alias {alias!r} of {model_name(region)} in MLflow points to {version or 'no version'}, "
                f"but the table promotions names {'none' if named is None else named.version}, so neither "
                "acts: find out who moved it, then `cachecast promote --rollback` puts it back"
            )
        return named

    def load(
        self,
        region: str,
        aliases: Sequence[str],
        *,
        champion: ModelVersion | None,
        digests: Mapping[str, str],
    ) -> RegionModels:
        """The models at the first of `aliases` that exists; CHAMPION counts if it is `champion`.

        `digests`: of the files of versions, by the table trainings. Raises StaleInputError if there is no
        such alias, and as `confirmed` and `load_version`.
        """
        for alias in aliases:
            if alias == CHAMPION:
                if (named := self.confirmed(region, alias, champion)) is not None:
                    return self.load_version(named)
            elif (version := self.version_at(region, alias)) is not None:
                return self.load_version(ModelVersion(version, digests.get(version)))
        raise no_model(region, aliases)

    def load_version(self, named: ModelVersion) -> RegionModels:
        """The models of a version; raises as `files`."""
        with self.files(named) as folder:
            return RegionModels(*read_bundle(folder), named.version, named.digest)

    def verify_bundle(self, named: ModelVersion) -> Bundle:
        """Check that a version's files are those of its digest and can be loaded; raises as `files`."""
        with self.files(named) as folder:
            bundle, _ = read_bundle(folder)
            if bundle.order is not None:
                read_order(folder, bundle.order)
        return bundle

    @contextlib.contextmanager
    def files(self, named: ModelVersion) -> Iterator[Path]:
        """A copy of a version's files for a block.

        Raises StaleInputError if the version is gone, ModelError if its files are not those of the digest or
        there is none, ServiceError.
        """
        if named.digest is None:
            raise ModelError(
                f"the table trainings does not name {named.version}: others registered it; "
                "train, evaluate and promote again"
            )
        with self._bundle(named.version) as folder:
            if (digest := bundle_digest(folder)) != named.digest:
                raise ModelError(
                    f"the files of {named.version} in MLflow are not those that were trained: digest "
                    f"{digest[:12]}…, not {named.digest[:12]}…; find out who changed them, then train again "
                    "or `cachecast promote --rollback`"
                )
            yield folder

    @contextlib.contextmanager
    def _bundle(self, version: str) -> Iterator[Path]:
        """A copy of a version's files, whose names and sizes were checked before they were fetched."""
        with tempfile.TemporaryDirectory() as scratch:
            with self._version(version) as (name, number):
                run_id = str(self._client.get_model_version(name, number).run_id)
                place = str(self._client.get_run(run_id).info.artifact_uri)
                check_place(self.uri, place)
                # By its place: to a run's number the server might give another answer now.
                files = get_artifact_repository(f"{place}/{BUNDLE_FOLDER}", tracking_uri=self.uri)
                n_files = in_time(partial(_fetch, files, Path(scratch)), within_s=FILES_S)
            if not n_files:
                raise StaleInputError(_missing(version))
            yield Path(scratch)


def _fetch(files: ArtifactRepository, folder: Path) -> int:
    """Copy a bundle into `folder`, file by file as listed; the number of its files.

    A folder that is fetched whole could hold other files now, and each could be longer than was listed.
    """
    sizes: dict[str, int] = {}
    for top in files.list_artifacts():
        inside = files.list_artifacts(top.path) if top.is_dir else [top]
        sizes |= {str(entry.path): int(entry.file_size or 0) for entry in inside}
    if sizes:
        check_listing(sizes)
    for name, size in sizes.items():
        (folder / name).parent.mkdir(exist_ok=True)
        files._download_file(name, str(folder / name))  # type: ignore[no-untyped-call]
        if (n_bytes := (folder / name).stat().st_size) != size:
            raise ModelError(
                f"MLflow lists {size} bytes of {name} and sends {n_bytes}; find out who changed it"
            )
    return len(sizes)


def _missing(version: str) -> str:
    return f"MLflow has no model version {version}, or its files are gone; train again"


def with_section(text: str, heading: str, body: str) -> str:
    """`text` with the section `heading` replaced by `body`, or added at its end; of bounded length."""
    sections = [part for part in text.split("\n\n## ") if not part.startswith(f"{heading}\n")]
    added = f"\n\n## {heading}\n\n{body[:_MOST_SECTION_CHARS]}"
    return "\n\n## ".join(sections)[: _MOST_CHARS - len(added)] + added


def load_order(
    registry: Registry,
    region: str,
    *,
    named: ModelVersion | None,
    known: ServedOrder | None = None,
    keep: Callable[[Path, ModelVersion], None] = lambda _, __: None,
) -> ServedOrder | None:
    """The region's promoted order of eviction; None if there is none.

    `named`: the version in the table promotions. `known`: an order loaded before, returned without reading
    its files again if it is still the same version with the same files. `keep`: gets the folder of files that
    were read, and their version. Raises ModelError if its files were changed or cannot be read, or the alias
    is not at `named`, and ServiceError.
    """
    if (confirmed := registry.confirmed(region, STEWARD, named)) is None:
        return None
    if known is not None and (known.version, known.digest) == (confirmed.version, confirmed.digest):
        return known
    with registry.files(confirmed) as folder:
        order = served_order(folder, confirmed)
        if order is not None:
            keep(folder, confirmed)
        return order
