"""An order of eviction goes from one site to another, whose steward tries it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from planted_region import DAY, MLFLOW_WARNINGS, SECOND, TRAIN_UNTIL_S, Mlflow, bundle_of, serve, settings_of

from features.common.errors import InputError, ModelError, StaleInputError
from features.results import IMPORTED_ORDERS
from features.schema import ACCESSES
from jobs.settings.tree import CacheSettings, Settings
from jobs.steward.promoted import Promoted
from jobs.store.tables import Tables
from jobs.train import exchange
from models.serving.bundle_files import read_about
from models.serving.names import CANDIDATE
from models.serving.order_file import FORMAT

pytestmark = [pytest.mark.long, *MLFLOW_WARNINGS]
CACHE = CacheSettings(name="xc1", kind="xcache", url="root://xc1:1094", capacity=100_000_000, steward=True)
NOW_S = TRAIN_UNTIL_S + DAY


def other_site(tmp_path: Path, policy: str = "auto") -> Settings:
    """A site that has trained nothing."""
    at = Mlflow(uri=f"sqlite:///{tmp_path}/other.db", artifacts=str(tmp_path / "other"))
    settings = settings_of(Tables(str(tmp_path / "other_tables")), at)
    steward = settings.steward.model_copy(update={"policy": policy})
    return settings.model_copy(update={"steward": steward, "caches": {"xc1": CACHE}})


def test_an_order_reaches_another_site_without_names_and_is_not_trusted_there(
    own: Mlflow, two_versions: Mlflow, tmp_path: Path
) -> None:
    home, file = settings_of(Tables(str(tmp_path / "tables")), own), tmp_path / "order.json"
    with pytest.raises(StaleInputError, match="no model cachecast-emea@steward"):
        exchange.export(home, file)
    assert exchange.export(home, file, alias=CANDIDATE).regions == ("emea",)
    serve(Tables(home.tables.root), own, 1, steward=SECOND)
    sent = exchange.export(home, file)

    accesses = Tables(str(Path(two_versions.artifacts).parent / "tables")).read_arrow(ACCESSES)
    names = {name for column in ("did", "dataset") for name in accesses[column].to_pylist()}
    text = file.read_text()
    assert len(names) > 40 and not [name for name in names if name in text]

    away = other_site(tmp_path)
    assert Promoted(away, CACHE, now_s=lambda: NOW_S).first() is None
    got = exchange.take(away, file, sha256=sent.digest.upper(), now_s=NOW_S)
    assert got == sent
    served = Promoted(away, CACHE, now_s=lambda: NOW_S).first()
    model = read_about(bundle_of(own, SECOND)).order
    assert served is not None and model is not None
    assert served.is_imported and served.version == f"imported-{sent.digest[:12]}"
    assert (served.kinds, served.until_s, served.order.from_s) == (model.kinds, *[TRAIN_UNTIL_S] * 2)
    too_late_s = TRAIN_UNTIL_S + away.training.max_age + 1
    assert Promoted(away, CACHE, now_s=lambda: too_late_s).first() is None
    assert Promoted(other_site(tmp_path, "s3fifo"), CACHE, now_s=lambda: NOW_S).first() is None
    assert Promoted(other_site(tmp_path, "learned"), CACHE, now_s=lambda: NOW_S).first() is None


def test_a_file_that_is_another_or_too_old_is_not_taken_in(own: Mlflow, tmp_path: Path) -> None:
    home, file = settings_of(Tables(str(tmp_path / "tables")), own), tmp_path / "order.json"
    digest, away = exchange.export(home, file, alias=CANDIDATE).digest, other_site(tmp_path)
    with pytest.raises(InputError, match=f"has the digest {digest}, which is not the one given"):
        exchange.take(away, file, sha256="0" * 64, now_s=NOW_S)
    with pytest.raises(StaleInputError, match="max_age"):
        exchange.take(away, file, sha256=digest, now_s=TRAIN_UNTIL_S + away.training.max_age + 1)
    with pytest.raises(ModelError, match="after now"):
        exchange.take(away, file, sha256=digest, now_s=TRAIN_UNTIL_S - 1)
    os.mkfifo(pipe := tmp_path / "pipe")
    with pytest.raises(InputError, match="is no file"):
        exchange.take(away, pipe, sha256=digest, now_s=NOW_S)
    store = Tables(away.tables.root)
    assert not store.exists(IMPORTED_ORDERS)
    exchange.take(away, file, sha256=digest, now_s=NOW_S)
    (row,) = store.read_arrow(IMPORTED_ORDERS).to_pylist()
    key = tuple(row[name] for name in IMPORTED_ORDERS.partition)
    store.replace_rows(IMPORTED_ORDERS, [row | {"file": row["file"] + " "}], key)
    found = Promoted(away, CACHE, now_s=lambda: NOW_S)
    assert found.first() is None and found.fault is not None and "was changed" in found.fault
    older = row["file"].replace(f'"format": {FORMAT}', f'"format": {FORMAT - 1}')
    row |= {"digest": hashlib.sha256(older.encode()).hexdigest(), "file": older}
    store.replace_rows(IMPORTED_ORDERS, [row], key)
    found = Promoted(away, CACHE, now_s=lambda: NOW_S)
    assert found.first() is None and found.fault is not None
    assert f"imported-{row['digest'][:12]} in the table imported_orders is not followed" in found.fault
    assert "an older cachecast wrote it; export it again there, and import that" in found.fault
