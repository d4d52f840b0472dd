"""What plan items ask for, and the states that they pass through; stored in tables and journals as text."""

import enum


class Action(enum.StrEnum):
    """What a plan item asks of a cache, in the order in which a push carries them out.

    Evictions make room; pins are renewed before what is fetched makes a purge choose.
    """

    EVICT = "evict"
    UNPIN = "unpin"
    PIN = "pin"
    PREFETCH = "prefetch"

    @property
    def code(self) -> int:
        return ACTIONS.index(self)


ACTIONS = tuple(Action)


class ItemState(enum.StrEnum):
    """State of a plan item in a push journal. `CANCELLING`: under way, and will not be tried again."""

    PLANNED = "planned"
    RUNNING = "running"
    CANCELLING = "cancelling"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
