"""What tables of settings are made of: frozen sections, and values written with their unit."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic

from features.errors import InputError
from features.units import parse_bytes, parse_duration


def _with_unit(parse: Any) -> pydantic.BeforeValidator:
    def convert(value: object) -> object:
        try:
            return parse(value) if isinstance(value, str) else value
        except InputError as error:
            raise ValueError(str(error)) from None

    return pydantic.BeforeValidator(convert)


Seconds = Annotated[int, _with_unit(parse_duration), pydantic.Field(gt=0)]
Pause = Annotated[int, _with_unit(parse_duration), pydantic.Field(ge=0)]
Bytes = Annotated[int, _with_unit(parse_bytes), pydantic.Field(gt=0)]
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Name = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Section(pydantic.BaseModel):
    """A frozen table of settings that knows every key it may hold."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")
