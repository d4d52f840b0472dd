"""The command `cachecast`, also as `python -m cachecast`, once the packages found by our names are ours.

Airflow and Spark put folders on the path that may hold a `jobs/` or `models.py` of their own.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_ROOMS = ("conf", "dags", "features", "jobs", "models", "prefetch", "replay")


def main() -> None:
    """Run the command, or say in one line which of our packages another one hides."""
    home = Path(__file__).resolve().parents[1]
    for room in _ROOMS:
        spec = importlib.util.find_spec(room)
        locations = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        location = next((Path(candidate).resolve() for candidate in locations if candidate), None)
        if location is None or not location.is_relative_to(home / room):
            sys.exit(
                f"error: cachecast's package {room!r} is hidden by {location}: take that folder off "
                "PYTHONPATH, or install cachecast into an environment of its own"
            )
    from jobs.cli.main import main as run  # noqa: PLC0415  it is looked for first

    run()


if __name__ == "__main__":
    main()
