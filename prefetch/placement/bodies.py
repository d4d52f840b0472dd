"""What callers send: shapes and names checked before anything else sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pydantic

from features.errors import InputError
from prefetch.placement.names import checked_address, checked_name, checked_site

MAX_INPUTS = 10_000
_MAX_NUMBER = 1e18


def _checked(check: Callable[[str], str]) -> pydantic.AfterValidator:
    def convert(text: str) -> str:
        try:
            return check(text)
        except InputError as error:
            raise ValueError(str(error)) from None

    return pydantic.AfterValidator(convert)


SiteName = Annotated[str, _checked(checked_site)]
FileName = Annotated[str, _checked(checked_name)]
Address = Annotated[str, _checked(checked_address)]
Positive = Annotated[float, pydantic.Field(gt=0, le=_MAX_NUMBER, allow_inf_nan=False)]
Seconds = Annotated[float, pydantic.Field(ge=0, le=_MAX_NUMBER, allow_inf_nan=False)]


class Heartbeat(pydantic.BaseModel):
    """A cache server tells that it lives; `size` is its capacity, in any unit that its site shares."""

    id: SiteName
    site: SiteName
    address: Address
    size: Positive


class PrefixAsked(pydantic.BaseModel):
    """A client asks through which server to read a file."""

    client: SiteName
    filename: FileName


class Serve(pydantic.BaseModel):
    """Clients of one site are served by the caches of another."""

    client: SiteName
    cache_site: SiteName


class Unserve(pydantic.BaseModel):
    """Clients of a site are served by its own caches again."""

    client: SiteName


class Input(pydantic.BaseModel):
    """A file or dataset that a job reads, with its size where the asker knows it."""

    did: FileName
    size_bytes: Annotated[int, pydantic.Field(ge=0, le=10**18)] | None = None


class ScoreAsked(pydantic.BaseModel):
    """A batch system asks where a job should run. `waited_s`: how long the job has been idle."""

    inputs: Annotated[list[FileName | Input], pydantic.Field(min_length=1, max_length=MAX_INPUTS)]
    waited_s: Seconds = 0.0
    max_wait_s: Seconds | None = None
