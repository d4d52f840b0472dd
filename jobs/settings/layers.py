"""Where settings come from, one layer over the other: shipped file, site, environment, command line."""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from features.errors import ConfigError

ENV_PREFIX = "CACHECAST_"
SHIPPED = "conf/base.toml"


def layered(
    conf: Path | None = None,
    *,
    base: Path | None = None,
    line: Mapping[str, Any] | None = None,
    env: Mapping[str, str] = os.environ,
) -> tuple[dict[str, Any], str]:
    """The values of all layers together, and where the site's are (for errors). Raises ConfigError.

    `conf`: the site's file or folder, else CACHECAST_CONF; it is laid over `base`, another such. `line`: the
    command line's values, which win over all others.
    """
    path = conf or (Path(env["CACHECAST_CONF"]) if env.get("CACHECAST_CONF") else None)
    sites = [_site(one) for one in (base, path) if one is not None]
    layers = [_shipped(), *sites, _from_environment(env), dict(line or {})]
    return functools.reduce(_merged, layers), SHIPPED if path is None else str(path)


def _shipped() -> dict[str, Any]:
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


def _site(path: Path) -> dict[str, Any]:
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


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
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


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, table by table."""
    both = dict(base)
    for key, value in over.items():
        known = both.get(key)
        both[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both
