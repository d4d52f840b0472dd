"""Types of settings: frozen sections, and values written with their unit."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import pydantic

from features.errors import ConfigError, InputError
from features.faults import Keys, first_fault
from features.units import parse_bytes, parse_duration
from jobs.settings.layers import SHIPPED, Layered


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


def checked(section: type[SectionType], given: Layered, *, at: str = "") -> SectionType:
    """The values of all layers as `section`, or those of its table `at`. Raises ConfigError.

    The error names the file that sets the first invalid key, the key, its value, and the remedy.
    """
    try:
        return section.model_validate(given.values[at] if at else given.values)
    except pydantic.ValidationError as error:
        fault = first_fault(section, error, table=(at,) if at else ())
        told = fault.what if fault.has_remedy else f"{fault.what}; see {_reference(fault.keys[0])}"
        raise ConfigError(given.where(*fault.keys), told) from None


def _reference(keys: Keys) -> str:
    """The file that has and explains every key of this table."""
    return "conf/caches/example.toml.sample" if keys[:1] == ("caches",) else SHIPPED
