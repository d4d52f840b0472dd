"""A bundle as files: `bundle.json`, a LightGBM text per horizon, and those of the order of eviction.

    bundle.json       see `models.serving.bundle`
    2d.lgb            that horizon's trees; missing if recency serves it
    order/90m.lgb     trees of the order of eviction; missing if there is none

Names are known, sizes are bounded, and one digest covers all files. A steward follows the order of a version
in MLflow, or of a copy that was kept of its files.
"""

import contextlib
import dataclasses
import hashlib
import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from features.common import deadline
from features.common.errors import ModelError
from features.common.units import duration_label, format_bytes
from features.spec import COLUMNS
from models.learning.baselines import RECENCY, Recency
from models.learning.learners import Scorer, Trees
from models.learning.order import HorizonTrees, horizon_models
from models.serving.bundle import Bundle, HorizonModel, OrderModel
from models.serving.versions import ModelVersion
from replay.kernels.trees import HorizonModels
from replay.policies.learned import Order

BUNDLE_FOLDER, BUNDLE_FILE = "bundle", "bundle.json"
ORDER_FOLDER = "order"
MAX_FILE_BYTES = deadline.MOST_BYTES
"""Most bytes of one file; 10 000 trees of 31 leaves take about a fifth."""
MAX_BUNDLE_BYTES = 2 << 30
_MAX_FILES = 400
_NAME = re.compile(rf"{BUNDLE_FILE}|(?:{ORDER_FOLDER}/)?\d{{1,9}}[a-z]\.lgb")


def check_listing(sizes: Mapping[str, int]) -> None:
    """Raise ModelError unless these are a bundle's files: `sizes` in bytes, by names relative to the bundle.

    There must be a `bundle.json`, and no file that training does not write: no folder `code`, no pickle.
    """
    if BUNDLE_FILE not in sizes:
        raise ModelError(f"the model bundle has no {BUNDLE_FILE}; train again")
    if strangers := sorted(name for name in sizes if not _NAME.fullmatch(name)):
        raise ModelError(
            f"the model bundle holds {strangers[0][:80]!r}, which training does not write: it was changed, "
            "or another version of cachecast trained it; train, evaluate and promote again"
        )
    largest = max(sizes, key=lambda name: sizes[name])
    total = sum(sizes.values())
    if sizes[largest] > MAX_FILE_BYTES or total > MAX_BUNDLE_BYTES or len(sizes) > _MAX_FILES:
        raise ModelError(
            f"the model bundle has {len(sizes)} files of {format_bytes(total)}, {largest} of "
            f"{format_bytes(sizes[largest])}: at most {_MAX_FILES} files of {format_bytes(MAX_BUNDLE_BYTES)} "
            f"and each of {format_bytes(MAX_FILE_BYTES)} are read; train fewer or smaller trees"
        )


def bundle_digest(folder: Path) -> str:
    """SHA-256 of all names and contents of the bundle in `folder`, as hex. Raises as `check_listing`."""
    paths = _listed(folder)
    whole = hashlib.sha256()
    for name in sorted(paths):
        with paths[name].open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        whole.update(f"{name}\n{digest}\n".encode())
    return whole.hexdigest()


def read_bundle(folder: Path) -> tuple[Bundle, tuple[tuple[HorizonModel, Scorer], ...]]:
    """The bundle in `folder`, and a scorer for each of its horizons. Raises ModelError."""
    bundle = read_about(folder)
    fitted = (
        (model, Recency() if model.learner == RECENCY else _trees(folder, model.horizon_s, bundle.columns))
        for model in bundle.models
    )
    return bundle, tuple(fitted)


def read_about(folder: Path) -> Bundle:
    """The bundle in `folder` without its models. Raises ModelError."""
    return Bundle.from_json(_read(folder, BUNDLE_FILE))


def read_order(folder: Path, order: OrderModel) -> HorizonModels:
    """The trees of `order`, checked. Raises ModelError."""
    if order.columns != COLUMNS:
        raise ModelError("the order of eviction takes other columns than this version makes; train again")
    where = folder / ORDER_FOLDER
    texts = (_trees(where, horizon_s, COLUMNS).text for horizon_s in order.horizons_s)
    return horizon_models(HorizonTrees(order.horizons_s, tuple(texts)))


def write_trees(folder: Path, horizon_s: int, text: str) -> None:
    """Write the trees of a horizon into `folder`: of a bundle, or its ORDER_FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _trees_file(horizon_s)).write_text(text)


def _trees(folder: Path, horizon_s: int, columns: Sequence[str]) -> Trees:
    file = _trees_file(horizon_s)
    text = _read(folder, file).decode("ascii", "replace")
    try:
        return Trees.of(text, columns)
    except ModelError as error:
        raise ModelError(f"{folder.name}/{file}: {error}; train again") from None


def _trees_file(horizon_s: int) -> str:
    return f"{duration_label(horizon_s)}.lgb"


def _read(folder: Path, file: str) -> bytes:
    try:
        return (folder / file).read_bytes()
    except OSError as error:
        raise ModelError(f"{folder.name}/{file} cannot be read ({error.strerror}); train again") from None


def _listed(folder: Path) -> dict[str, Path]:
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if _is_file(path)}
    check_listing({name: path.stat().st_size for name, path in paths.items()})
    return paths


def _is_file(path: Path) -> bool:
    """False for a folder. Training writes nothing else than files, and a pipe could be read for ever."""
    is_link = path.is_symlink()
    if is_link or not (path.is_dir() or path.is_file()):
        what = f"the link {path.name[:80]!r}" if is_link else f"{path.name[:80]!r}, which is no plain file"
        raise ModelError(f"the model bundle holds {what}, so it is not read; train again")
    return not path.is_dir()


_DIGEST = re.compile("[0-9a-f]{64}")
_OURS = re.compile(rf"{_DIGEST.pattern}|\.[0-9a-f]+\.draft")


@dataclasses.dataclass(frozen=True)
class ServedOrder:
    """An order of eviction for the caches of a region.

    `kinds`: names of the kinds of files in its training (`replay.access_context`); `readers`: the kinds of
    readers that it distinguishes (`features.accesses`); `until_s`: end of the training data, s since
    1970; `digest`: of its files.
    """

    order: Order
    kinds: tuple[str, ...]
    until_s: int
    version: str
    readers: tuple[str, ...] = ()
    digest: str | None = None


def served_order(folder: Path, named: ModelVersion) -> ServedOrder | None:
    """The order in the version's files in `folder`; None: they have none. Raises ModelError."""
    model = read_about(folder).order
    if model is None:
        return None
    order = Order(model.until_s, read_order(folder, model))
    return ServedOrder(order, model.kinds, model.until_s, named.version, model.readers, digest=named.digest)


def kept_order(copies: Path, named: ModelVersion) -> ServedOrder | None:
    """The order of the version whose files `keep_files` has copied; None without a copy that can be read.

    The copy counts only if its files have the version's digest.
    """
    if (folder := _copy(copies, named)) is None:
        return None
    with contextlib.suppress(OSError, ModelError), tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch)  # what is checked and then read there, nobody else can exchange between
        for name, path in _listed(folder).items():
            (own / name).parent.mkdir(exist_ok=True)
            with path.open("rb") as stream:
                (own / name).write_bytes(stream.read(MAX_FILE_BYTES))
        if bundle_digest(own) == named.digest:
            return served_order(own, named)
    return None


def keep_files(folder: Path, copies: Path, named: ModelVersion) -> None:
    """Copy a version's files into the folder `copies`, in place of those of others. Raises OSError."""
    if (copy := _copy(copies, named)) is None:
        return
    copies.mkdir(parents=True, exist_ok=True)
    draft = copies / f".{secrets.token_hex(8)}.draft"
    try:
        shutil.copytree(folder, draft)
        for other in copies.iterdir():
            if other != draft and _OURS.fullmatch(other.name):
                _remove(other)
        draft.rename(copy)
    finally:
        _remove(draft)


def _copy(copies: Path, named: ModelVersion) -> Path | None:
    digest = named.digest or ""
    return copies / digest if _DIGEST.fullmatch(digest) else None


def _remove(path: Path) -> None:
    """Remove a folder, or what lies in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
