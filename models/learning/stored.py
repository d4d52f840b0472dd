"""Scorers from their stored form, as a bundle keeps them."""

from __future__ import annotations

import lightgbm as lgb
import skops.io

from features.errors import ModelError
from models.learning.baselines import RECENCY, Recency
from models.learning.learners import FittedLightGBM, FittedSklearn, Scorer
from models.learning.skops_file import TRUSTED


def load_payload(flavour: str, payload: bytes) -> Scorer:
    """The scorer of a `payload()`, or of what `models.serving.native.read_native` checked: no other is safe.

    Raises ModelError for an unknown flavour.
    """
    if flavour == "lightgbm":
        return FittedLightGBM(lgb.Booster(model_str=payload.decode()))
    if flavour == "sklearn":
        return FittedSklearn(skops.io.loads(payload, trusted=TRUSTED))
    if flavour == RECENCY:
        return Recency()
    raise ModelError(f"unknown model flavour {flavour!r}; train again with this version")
