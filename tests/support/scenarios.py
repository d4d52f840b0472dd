"""Scenarios of generated regions, with some of their values changed."""

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "conf" / "workloads"


def values_of(scenario: str, **changes: Any) -> dict[str, Any]:
    """The values of a scenario; `changes` of habits or of all categories, or else of the scenario."""
    values = tomllib.loads((FOLDER / f"{scenario}.toml").read_text(encoding="utf-8"))
    for key, value in changes.items():
        if key in values.get("habits", {}):
            values["habits"][key] = value
        elif key in values["category"]:
            values["category"][key] = value
            values["categories"] = [
                row | ({key: value} if key in row else {}) for row in values["categories"]
            ]
        else:
            values[key] = value
    return values
