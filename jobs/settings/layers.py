"""Where settings come from, one layer over the other: shipped file, site, environment."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from features.errors import ConfigError

ENV_PREFIX = "CACHECAST_"
SHIPPED = "conf/base.toml"


def shipped() -> dict[str, Any]:
    """The defaults that come with the package."""
    return read_toml(SHIPPED, resources.files("conf").joinpath("base.toml").read_text())


def read_toml(where: str, text: str) -> dict[str, Any]:
    """The values in `text`. Raises ConfigError naming `where` it stands."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(where, f"not TOML that can be read: {error}") from None
    except RecursionError:
        raise ConfigError(where, "not TOML that can be read: nested too deep") from None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return read_toml(str(path), path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            str(path), f"cannot be read ({type(error).__name__}); check the path given by --conf"
        ) from None


def site(path: Path) -> dict[str, Any]:
    """The values of a site's file, or folder with `base.toml` and `caches/*.toml`. Raises ConfigError."""
    if not path.is_dir():
        return _read_file(path)
    base = path / "base.toml"
    values = _read_file(base) if base.exists() else {}
    caches = values.get("caches", {})
    if not isinstance(caches, dict):
        raise ConfigError(f"{base}: caches", "must be a table; see conf/caches/example.toml.sample")
    caches = dict(caches)
    for file in sorted((path / "caches").glob("*.toml")):
        cache = _read_file(file)
        if cache.get("name") != file.stem:
            raise ConfigError(f"{file}: name", f"must be {file.stem!r}, the name of its file")
        caches[file.stem] = cache
    return {**values, "caches": caches}


def from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    """What variables as `CACHECAST_PLAN__HORIZON` say."""
    values: dict[str, Any] = {}
    for key, text in env.items():
        section, separator, name = key.removeprefix(ENV_PREFIX).lower().partition("__")
        if key.startswith(ENV_PREFIX) and separator:
            values.setdefault(section, {})[name] = _environment_value(text)
    return values


def _environment_value(text: str) -> object:
    """A TOML array or table where the text is one, else the text: pydantic turns it into the key's type."""
    if text.startswith(("[", "{")):
        return read_toml("environment", f"value = {text}")["value"]
    return text


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, table by table."""
    both = dict(base)
    for key, value in over.items():
        known = both.get(key)
        both[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both
