"""Settings for a site with a week of records: one horizon, one learner. Everything else is as shipped."""

from __future__ import annotations

SMALL = {
    "CACHECAST_FEATURES__CYCLE": "12h",
    "CACHECAST_FEATURES__HORIZONS": '["1d"]',
    "CACHECAST_FEATURES__CANDIDATES": "3d",
    "CACHECAST_TRAINING__EVERY": "12h",
    "CACHECAST_TRAINING__SPAN": "5d",
    "CACHECAST_TRAINING__LEARNERS": '["lightgbm"]',
    "CACHECAST_TRAINING__TREES": "20",
    "CACHECAST_PLAN__HORIZON": "1d",
    "CACHECAST_PLAN__PREFETCH_SHARE": "1",
}
"""Variables of the environment."""
