"""An order of eviction as one file that sites exchange: JSON with its description and its trees.

It has no name of a file, user or dataset. It names the regions where it was learned, and kinds of files that
are known beyond the site: any other extension could be a part of a name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re

import pydantic

from features.common.errors import InputError, ModelError
from features.spec import COLUMNS
from models.learning.order import HorizonTrees, horizon_models
from models.serving.bundle import OrderModel, check_order

FORMAT = 2
MOST_BYTES = 16 << 20
"""Most bytes of a file; ten horizons take about a tenth."""
KINDS = frozenset(
    {"root", "h5", "hdf5", "nwb", "nc", "zarr", "parquet", "npy", "npz", "csv", "txt", "log", "json", "xml"}
    | {
        "tar",
        "gz",
        "tgz",
        "bz2",
        "xz",
        "zst",
        "zip",
        "raw",
        "dat",
        "bin",
        "fits",
        "nii",
        "dcm",
        "tif",
        "tiff",
    }
    | {"png", "jpg", "mp4", "fastq", "bam", "cram", "vcf", "edf"}
)
"""Kinds of files that an order may name at other sites."""
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_REGIONS, _MOST_KIND_CHARS = 100, 16


@dataclasses.dataclass(frozen=True)
class OrderFile:
    """An order, and LightGBM's text for each of its horizons."""

    order: OrderModel
    trees: tuple[str, ...]
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """The file; the same order gives the same bytes."""
        kinds = [kind if kind in {*KINDS, ""} else f"/{i}" for i, kind in enumerate(self.order.kinds)]
        order = dataclasses.replace(self.order, kinds=tuple(kinds))  # no extension has a slash
        return json.dumps(dataclasses.asdict(dataclasses.replace(self, order=order))).encode()

    @staticmethod
    def of(data: bytes) -> OrderFile:
        """The order in a file. Raises ModelError unless it can be followed."""
        try:
            _need(len(data) <= MOST_BYTES, f"more than {MOST_BYTES} bytes")
            found = _adapter().validate_json(data, strict=True)
            _check(found)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))[:80]
            raise ModelError(f"the order cannot be read ({where}: {first['msg']})") from None
        except (ValueError, ArithmeticError, OSError, InputError) as error:
            raise ModelError(f"the order cannot be read ({error})") from None
        return found

    @property
    def rungs(self) -> HorizonTrees:
        """The models of the order."""
        return HorizonTrees(self.order.horizons_s, self.trees)


def digest(data: bytes) -> str:
    """SHA-256 of a file, as hex."""
    return hashlib.sha256(data).hexdigest()


@functools.cache
def _adapter() -> pydantic.TypeAdapter[OrderFile]:
    return pydantic.TypeAdapter(OrderFile)


def _check(found: OrderFile) -> None:
    order = found.order
    _need(found.format >= FORMAT, "an older cachecast wrote it; export it again there, and import that")
    _need(found.format == FORMAT, f"not of format {FORMAT}")
    check_order(order)
    _need(order.columns == COLUMNS, "it takes other columns than this version makes")
    _need(0 < len(order.regions) <= _MOST_REGIONS, "no region")
    _need(all(_REGION.fullmatch(one) for one in order.regions), "the name of a region")
    _need(all(len(kind) <= _MOST_KIND_CHARS and kind.isprintable() for kind in order.kinds), "kinds")
    _need(len(found.trees) == len(order.horizons_s), "a model per horizon")
    horizon_models(found.rungs)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
