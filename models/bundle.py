"""What a model needs beside its library's own file, as JSON: inputs, words, calibration, and until when."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from features.errors import ModelError
from features.spec import FeatureSpec
from features.units import duration_label
from models.calibration import Knots

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Everything but the trees. `trained_until_s`: no record or label after it was seen (seconds, 1970)."""

    region: str
    horizon_s: int
    spec: FeatureSpec
    columns: tuple[str, ...]
    vocabulary: dict[str, list[str]]
    learner: str
    flavour: str
    calibration: Knots
    reads: Knots
    trained_until_s: int

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1)

    @staticmethod
    def from_json(text: str) -> Bundle:
        """The bundle of `to_json`. Raises ModelError if another version wrote it, or it is damaged."""
        try:
            raw: dict[str, Any] = json.loads(text)
            written = raw.pop("format")
            if written != FORMAT:
                raise ModelError(f"the model's bundle has format {written}, not {FORMAT}; train again")
            return Bundle(
                **{
                    **raw,
                    "spec": FeatureSpec(**{k: _tupled(v) for k, v in raw["spec"].items()}),
                    "columns": tuple(raw["columns"]),
                    "calibration": _knots(raw["calibration"]),
                    "reads": _knots(raw["reads"]),
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"the model's bundle cannot be read ({error}); train again") from None

    def check(self, *, spec: FeatureSpec, region: str) -> None:
        """Raise ModelError unless the model takes features of `spec` and is of `region`."""
        same = dataclasses.replace(self.spec, horizons_s=spec.horizons_s) == spec
        if self.region != region or not same:
            raise ModelError(
                f"the model of region {self.region!r}, horizon {duration_label(self.horizon_s)}, was trained "
                f"with other settings of [features] or for another region than {region!r}; train again"
            )


def _knots(raw: dict[str, Any]) -> Knots:
    return Knots(raw["kind"], tuple(raw["x"]), tuple(raw["y"]))


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
