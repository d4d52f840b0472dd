"""The JSON part of a region's models: inputs, vocabulary, calibration and time of training."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from features import strict_json
from features.errors import ModelError, StaleInputError
from features.spec import FeatureSpec
from features.times import as_of_label
from features.units import duration_label
from models.learning.calibration import Knots
from models.serving.drift import Reference

FORMAT = 2


@dataclasses.dataclass(frozen=True)
class HorizonModel:
    """One horizon's model without its trees. `trained_until_s`: end of the latest label used, s since 1970.

    `scores`: the distribution of its probabilities over the rows it was fitted on.
    """

    horizon_s: int
    learner: str
    flavour: str
    calibration: Knots
    reads: Knots
    trained_until_s: int
    scores: Reference

    @property
    def within(self) -> str:
        """The horizon as people write it; the name of the model's folder in a bundle."""
        return duration_label(self.horizon_s)


@dataclasses.dataclass(frozen=True)
class Bundle:
    """All horizons' models of a region; they share the matrix of `columns`, with words coded by `vocabulary`.

    `until_s`: time of the training; nothing known later was used. `dropped`: horizons of the settings without
    a model, with the reason. `spread`: the distribution of each column, for the detection of drift.
    """

    region: str
    spec: FeatureSpec
    columns: tuple[str, ...]
    vocabulary: dict[str, list[str]]
    until_s: int
    models: tuple[HorizonModel, ...]
    dropped: dict[str, str]
    spread: dict[str, Reference]

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str | bytes) -> Bundle:
        """The bundle of `to_json`. Raises ModelError if another version wrote it, or it is damaged."""
        try:
            raw: dict[str, Any] = strict_json.loads(text)
            written = raw.pop("format")
            if written != FORMAT:
                raise ModelError(f"the model bundle has format {written}, not {FORMAT}; train again")
            return Bundle(
                **{
                    **raw,
                    "spec": FeatureSpec(**{k: _tupled(v) for k, v in raw["spec"].items()}),
                    "columns": tuple(raw["columns"]),
                    "models": tuple(_horizon_model(one) for one in raw["models"]),
                    "spread": {name: _reference(one) for name, one in raw["spread"].items()},
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"the model bundle cannot be read ({error}); train again") from None

    def check(self, *, spec: FeatureSpec, region: str) -> None:
        """Raise ModelError unless the models take features of `spec`, are of `region` and share a horizon."""
        same = dataclasses.replace(self.spec, horizons_s=spec.horizons_s) == spec
        if self.region != region or not same:
            raise ModelError(
                f"the models of region {self.region!r} of {as_of_label(self.until_s)} were trained with "
                f"other settings of [features] or for another region than {region!r}; train again"
            )
        if not {model.horizon_s for model in self.models} & set(spec.horizons_s):
            raise ModelError(
                f"the models of region {region!r} cover none of the horizons {_labels(spec.horizons_s)}; "
                f"they have {', '.join(model.within for model in self.models) or 'none'}; train again"
            )

    def check_time(self, as_of_s: int, *, max_age_s: int) -> None:
        """Raise unless the models may score `as_of_s`.

        ModelError if they have seen anything later; StaleInputError if they are older than `max_age_s`.
        """
        seen = max(model.trained_until_s for model in self.models)
        if seen > as_of_s:
            raise ModelError(
                f"the models of region {self.region!r} were trained on data until {as_of_label(seen)}, after "
                f"{as_of_label(as_of_s)}: their predictions there would know the future; predict later "
                "as_ofs, or train on earlier ones"
            )
        if as_of_s - self.until_s > max_age_s:
            raise StaleInputError(
                f"the models of region {self.region!r} are of {as_of_label(self.until_s)}, more than "
                f"{duration_label(max_age_s)} before {as_of_label(as_of_s)} ([training] max_age); train again"
            )


def _horizon_model(raw: Mapping[str, Any]) -> HorizonModel:
    knots = {name: _knots(raw[name]) for name in ("calibration", "reads")}
    return HorizonModel(**{**raw, **knots, "scores": _reference(raw["scores"])})


def _knots(raw: Mapping[str, Any]) -> Knots:
    return Knots(raw["kind"], tuple(raw["x"]), tuple(raw["y"]))


def _reference(raw: Mapping[str, Any]) -> Reference:
    return Reference(tuple(raw["edges"]), tuple(raw["shares"]), float(raw["usual_psi"]))


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _labels(horizons_s: tuple[int, ...]) -> str:
    return ", ".join(duration_label(h) for h in horizons_s)
