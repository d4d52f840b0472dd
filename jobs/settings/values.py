"""Types of settings: frozen sections, and values written with their unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import pydantic

from features.errors import ConfigError, InputError
from features.units import parse_bytes, parse_duration


def _with_unit(parse: Any) -> pydantic.BeforeValidator:
    def convert(value: object) -> object:
        try:
            return parse(value) if isinstance(value, str) else value
        except InputError as error:
            raise ValueError(str(error)) from None

    return pydantic.BeforeValidator(convert)


# Larger values are mistakes, and would not fit into a date or 64 bits.
_CENTURY_S = 100 * 366 * 86400
_MOST_BYTES = 2**62
Seconds = Annotated[int, _with_unit(parse_duration), pydantic.Field(gt=0, le=_CENTURY_S)]
Pause = Annotated[int, _with_unit(parse_duration), pydantic.Field(ge=0, le=_CENTURY_S)]
Bytes = Annotated[int, _with_unit(parse_bytes), pydantic.Field(gt=0, le=_MOST_BYTES)]
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Name = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Section(pydantic.BaseModel):
    """A frozen table of settings; unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


SectionType = TypeVar("SectionType", bound=Section)


def checked(section: type[SectionType], values: Mapping[str, Any], where: str) -> SectionType:
    """`values` as `section`. Raises ConfigError naming the first invalid key in `where`."""
    try:
        return section.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "settings"
        remedy = (
            "remove it, or correct its name" if first["type"] == "extra_forbidden" else "see conf/base.toml"
        )
        raise ConfigError(
            f"{where}: {key}", f"{first['msg'].removeprefix('Value error, ')}; {remedy}"
        ) from None
