"""A training that serves although nothing has proven it: what is too short to win goes on nevertheless."""

import time

from features.common.times import as_of_label, day_label
from features.results import PROMOTIONS
from jobs.ground.settings.tree import Settings
from jobs.ground.store.tables import Tables
from jobs.loop.trainings import registry, trained_versions
from models.serving.versions import CANDIDATE, CHAMPION


def promote(settings: Settings) -> str:
    """Let the region's candidate serve as if it had won, in MLflow and on our record; its version."""
    at, region, now_s = registry(settings.mlflow), settings.region.name, int(time.time())
    tables, version = Tables(settings.tables.root), str(at.version_at(region, CANDIDATE))
    at.point(CHAMPION, version)
    row: dict[str, object] = {"action": "promote", "model_version": version, "champion": version}
    row |= {
        "comparisons": "[]",
        "champion_digest": trained_versions(tables, region=region)[version].digest,
        "reasons": ["for a test"],
    }
    tables.replace_rows(PROMOTIONS, [row], (day_label(now_s), as_of_label(now_s), region))
    return version
