"""A bundle as files: `bundle.json`, a folder per horizon, and the trees of the order of eviction.

Names are known, sizes bounded; one digest covers them all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from features.errors import ModelError
from features.stream.columns import COLUMNS
from features.units import duration_label, format_bytes
from models.learning.baselines import RECENCY
from models.learning.order import Rungs, ladder_of
from models.serving.bundle import Bundle, OrderModel
from models.serving.native import MODEL_FILE, read_native
from replay.forest import Ladder

BUNDLE_FOLDER, BUNDLE_FILE = "bundle", "bundle.json"
ORDER_FOLDER = "order"
MAX_FILE_BYTES = 512 << 20
"""Of one file: 10 000 trees of 31 leaves take about a tenth."""
MAX_BUNDLE_BYTES = 2 << 30
_MAX_FILES = 400
_ABOUT_A_MODEL = {
    *("MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt"),
    *("input_example.json", "serving_input_example.json"),
}
"""What MLflow puts beside a model, for other readers; nothing of it is read here."""
_NAME = re.compile(
    rf"{BUNDLE_FILE}|{ORDER_FOLDER}/\d{{1,9}}[a-z]\.lgb"
    rf"|\d{{1,9}}[a-z]/({'|'.join(sorted({MODEL_FILE, *_ABOUT_A_MODEL}))})"
)
_BLOCK_BYTES = 1 << 20


def check_listing(sizes: Mapping[str, int]) -> None:
    """Refuse (ModelError) files by their names relative to the bundle, and sizes in bytes.

    There must be a `bundle.json`, and nothing that training does not write: no folder `code`, no pickle.
    """
    if BUNDLE_FILE not in sizes:
        raise ModelError(f"the model bundle has no {BUNDLE_FILE}; train again")
    if strangers := sorted(name for name in sizes if not _NAME.fullmatch(name)):
        raise ModelError(
            f"the model bundle holds {strangers[0][:80]!r}, which training does not write: it was changed, "
            "or an older cachecast trained it; it is not read, so train again"
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
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if _is_file(path)}
    check_listing({name: path.stat().st_size for name, path in paths.items()})
    whole = hashlib.sha256()
    for name in sorted(paths):
        whole.update(f"{name}\n{_file_digest(paths[name])}\n".encode())
    return whole.hexdigest()


def read_bundle(folder: Path) -> tuple[Bundle, dict[int, bytes]]:
    """The bundle in `folder`, and by horizon its checked models. Raises ModelError."""
    bundle = read_about(folder)
    models = {
        one.horizon_s: b"" if one.learner == RECENCY else read_native(folder / one.within, bundle.columns)
        for one in bundle.models
    }
    return bundle, models


def read_about(folder: Path) -> Bundle:
    """The bundle in `folder` without its models. Raises ModelError."""
    return Bundle.from_json(_read(folder, BUNDLE_FILE))


def write_order(folder: Path, rungs: Rungs) -> None:
    """Write the trees of an order of eviction. Raises ModelError if they could not be read again."""
    (folder / ORDER_FOLDER).mkdir(parents=True)
    ladder_of(rungs)
    for horizon_s, text in zip(rungs.horizons_s, rungs.texts, strict=True):
        (folder / _order_file(horizon_s)).write_text(text)


def read_order(folder: Path, order: OrderModel) -> Ladder:
    """The trees of `order`, checked. Raises ModelError."""
    if order.columns != COLUMNS:
        raise ModelError("the order of eviction takes other columns than this version makes; train again")
    files = [_order_file(horizon_s) for horizon_s in order.horizons_s]
    texts = tuple(_read(folder, file).decode("ascii", "replace") for file in files)
    try:
        return ladder_of(Rungs(order.horizons_s, texts))
    except ModelError as error:
        raise ModelError(f"{ORDER_FOLDER}: {error}; train again") from None


def _order_file(horizon_s: int) -> str:
    return f"{ORDER_FOLDER}/{duration_label(horizon_s)}.lgb"


def _read(folder: Path, file: str) -> bytes:
    try:
        return (folder / file).read_bytes()
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}); train again") from None


def _is_file(path: Path) -> bool:
    """False for a folder; a link counts as a file that training never writes."""
    if path.is_symlink():
        raise ModelError(
            f"the model bundle holds the link {path.name[:80]!r}, so it is not read; train again"
        )
    return not path.is_dir()


def _file_digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            found.update(block)
    return found.hexdigest()


def relative(path: str) -> str:
    """MLflow's path of an artifact, relative to the bundle."""
    return str(PurePosixPath(path).relative_to(BUNDLE_FOLDER))
