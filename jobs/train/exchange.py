"""Orders of eviction between sites: `model export` writes one as a file, `model import` takes one in.

An imported order is no version in MLflow and needs no promotion: a steward with the policy `auto` tries it
(`jobs.steward.imported`) in a shadow cache on the cache's own reads, and follows it while it surely misses
fewer bytes there.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from features.common import files
from features.common.errors import InputError, ModelError, StaleInputError
from features.common.times import as_of_label
from features.common.units import duration_label
from features.results import IMPORTED_ORDERS
from jobs.settings.tree import Settings
from jobs.store.keys import MomentKey
from jobs.store.tables import Tables
from jobs.store.trainings import as_trained, named, trained
from jobs.train.described import order_in_words
from jobs.train.registry import registry
from models.serving.bundle_files import read_about, read_order_trees
from models.serving.names import STEWARD, no_model
from models.serving.order_file import MOST_BYTES, OrderFile, digest


@dataclasses.dataclass(frozen=True)
class Exchanged:
    """An order that was exported or imported.

    `digest`: of its file; `regions`: where it was learned; `until`: nothing known later was used; `order`: in
    words.
    """

    digest: str
    regions: tuple[str, ...]
    until: str
    order: str | None
    n_bytes: int


def export(settings: Settings, out: Path, *, alias: str = STEWARD) -> Exchanged:
    """Write the region's order of eviction at `alias` in MLflow to `out`.

    `alias`: STEWARD, the one that was promoted, or CANDIDATE, the newest training. Raises StaleInputError if
    there is none, ModelError if its files were changed, InputError if `out` cannot be written, ServiceError.
    """
    tables, region = Tables(settings.tables.root), settings.region.name
    at = registry(settings.mlflow)
    if alias == STEWARD:
        version = at.confirmed(region, STEWARD, named(tables, region=region).get(STEWARD))
    else:
        name = at.version_at(region, alias)
        version = None if name is None else as_trained(trained(tables, region=region), name)
    if version is None:
        raise no_model(region, [alias])
    with at.files(version) as folder:
        order = read_about(folder).order
        if order is None:
            raise StaleInputError(f"{version.version} has no order of eviction; `cachecast train` says why")
        trees = read_order_trees(folder, order)
    order = dataclasses.replace(order, regions=order.regions or (region,))
    data = OrderFile(order, trees).to_bytes()
    try:
        with files.replaced(out) as draft:
            draft.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; name another place") from None
    return _exchanged(OrderFile.of(data), data)


def take(settings: Settings, file: Path, *, sha256: str, now_s: int) -> Exchanged:
    """Take the order in `file` in for the region, in place of an earlier one.

    `sha256`: as `export` gave it. Raises InputError if the file cannot be read or is another one, ModelError
    if its order cannot be followed, StaleInputError if it is older than `[training] max_age`.
    """
    if not file.is_file():
        raise InputError(f"{file} is no file; name the file of `model export`")
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{file} cannot be read ({error.strerror}); name the file of `model export`"
        ) from None
    if (found := digest(data)) != sha256.strip().lower():
        raise InputError(
            f"{file} has the digest {found}, which is not the one given: ask the site that exported it for "
            "its digest, by another way than the file's"
        )
    order_file = OrderFile.of(data)
    until_s, max_age_s = order_file.order.until_s, settings.training.max_age
    if until_s > now_s:
        raise ModelError(f"the order is of {as_of_label(until_s)}, after now: compare both sites' clocks")
    if now_s - until_s > max_age_s:
        raise StaleInputError(
            f"the order is of {as_of_label(until_s)}, older than {duration_label(max_age_s)} ([training] "
            "max_age): ask for a newer one"
        )
    row = {"digest": found, "file": data.decode()}
    key = MomentKey.at(now_s, settings.region.name)
    Tables(settings.tables.root).replace_rows(IMPORTED_ORDERS, [row], key)
    return _exchanged(order_file, data)


def _exchanged(found: OrderFile, data: bytes) -> Exchanged:
    order = found.order
    return Exchanged(
        digest(data), order.regions, as_of_label(order.until_s), order_in_words(order), len(data)
    )
