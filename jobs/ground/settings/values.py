"""Types of settings: frozen sections, and values written with their unit."""

import re
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import pydantic

from features.common.errors import ConfigError, InputError
from features.common.faults import first_fault
from features.common.units import CENTURY_S, MOST_BYTES, parse_bytes, parse_duration
from jobs.ground.settings.layers import SHIPPED, Layered


def _with_unit(parse: Any) -> pydantic.BeforeValidator:
    def convert(value: object) -> object:
        try:
            return parse(value) if isinstance(value, str) else value
        except InputError as error:
            raise ValueError(str(error)) from None

    return pydantic.BeforeValidator(convert)


def _whole_days(seconds: int) -> int:
    if seconds % 86400:
        raise ValueError("must be whole days")
    return seconds


Seconds = Annotated[int, _with_unit(parse_duration), pydantic.Field(gt=0, le=CENTURY_S)]
Pause = Annotated[int, _with_unit(parse_duration), pydantic.Field(ge=0, le=CENTURY_S)]
Bytes = Annotated[int, _with_unit(parse_bytes), pydantic.Field(gt=0, le=MOST_BYTES)]
WholeDays = Annotated[Seconds, pydantic.AfterValidator(_whole_days)]
Hour = Annotated[int, pydantic.Field(ge=0, le=24)]
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Name = Annotated[str, pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
PREFIX = r"^(/[A-Za-z0-9_][A-Za-z0-9._+=@-]*)*$"  # what comes before the places of files at a server
Destination = Annotated[str, pydantic.Field(pattern=r"^/[a-z-]+/[A-Za-z0-9._/*#>-]{1,200}$")]
"""Of messages at a broker, for example `/topic/xrootd.shoveler`."""


def _names_some(pattern: str) -> str:
    if not pattern.strip("*?/ "):
        raise ValueError("must name something: a pattern of `*`, `?` and `/` alone means every name")
    return pattern


Pattern = Annotated[str, pydantic.AfterValidator(_names_some)]
"""A pattern of names, where `*` is any text and `?` any character; it does not mean every name."""


def _rising(marks: tuple[float, float]) -> tuple[float, float]:
    low, high = marks
    if not 0 < low <= high <= 1:
        raise ValueError("watermarks must be 0 < low <= high <= 1")
    return marks


Watermarks = Annotated[tuple[float, float], pydantic.AfterValidator(_rising)]


def _http_url(url: str) -> str:
    if url and not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    try:
        parts = urlsplit(url)
        has_host = bool((parts.hostname or "").encode("idna")) and (parts.port is None or parts.port > 0)
    except ValueError:
        has_host = False
    if url and not (has_host and "@" not in parts.netloc and re.fullmatch("[!-~]+", url)):
        raise ValueError("must be a URL of printable ASCII, with a host, and without a user")
    return url


def _secret_url(url: pydantic.SecretStr) -> pydantic.SecretStr:
    _http_url(url.get_secret_value())
    return url


HttpUrl = Annotated[str, pydantic.AfterValidator(_http_url)]
"""An http(s) URL, or nothing. An HTTP client accepts it: if not, its error would show a secret in it."""
SecretHttpUrl = Annotated[pydantic.SecretStr, pydantic.AfterValidator(_secret_url)]


class Section(pydantic.BaseModel):
    """A frozen table of settings; unknown keys are errors."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


SectionType = TypeVar("SectionType", bound=Section)


def checked(section: type[SectionType], layers: Layered, *, at: str = "") -> SectionType:
    """The values of all layers as `section`, or those of its table `at`. Raises ConfigError.

    The error names the file that sets the first invalid key, the key, its value, and the remedy.
    """
    try:
        return section.model_validate(layers.values[at] if at else layers.values)
    except pydantic.ValidationError as error:
        fault = first_fault(section, error, table=(at,) if at else ())
        explained = "conf/caches/example.toml.sample" if fault.keys[0][:1] == ("caches",) else SHIPPED
        what = fault.what if fault.has_remedy else f"{fault.what}; see {explained}"
        raise ConfigError(layers.where(*fault.keys), what) from None
