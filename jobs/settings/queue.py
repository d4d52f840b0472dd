"""The settings of `[queue]`."""

from __future__ import annotations

import pydantic

from jobs.settings.values import Seconds, Section


class QueueSettings(Section):
    """How queues of jobs are queried, and how long their entries are valid."""

    stale: Seconds
    timeout: Seconds
    token: pydantic.SecretStr
