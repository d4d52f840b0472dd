"""The layers that settings come from: shipped file, site, environment, command line; later ones win."""

from __future__ import annotations

import functools
import os
import stat
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from features.errors import ConfigError

ENV_PREFIX = "CACHECAST_"
SHIPPED = "conf/base.toml"
MAX_FILE_BYTES = 2**20
"""Largest file of settings: a parser can take hours for a few lines of a larger one."""


def layered(
    conf: Path | None = None,
    *,
    base: Path | None = None,
    line: Mapping[str, Any] | None = None,
    env: Mapping[str, str] = os.environ,
) -> tuple[dict[str, Any], str]:
    """The merged values of all layers, and the path of the site's layer for error messages.

    `conf`: the site's file or folder, by default CACHECAST_CONF; it overrides `base`, another one. `line`:
    values of the command line, which override all others. Raises ConfigError.
    """
    path = conf or (Path(env["CACHECAST_CONF"]) if env.get("CACHECAST_CONF") else None)
    sites = [_site(one) for one in (base, path) if one is not None]
    layers = [_shipped(), *sites, _from_environment(env), dict(line or {})]
    return functools.reduce(_merged, layers), SHIPPED if path is None else str(path)


def _shipped() -> dict[str, Any]:
    """The defaults that come with the package."""
    return read_toml(SHIPPED, resources.files("conf").joinpath("base.toml").read_text())


def read_toml(where: str, text: str) -> dict[str, Any]:
    """The values in TOML `text`. Raises ConfigError naming `where` it was read."""
    try:
        values = tomllib.loads(text)
        has_nul = _has_nul(values)
    except ValueError as error:
        raise ConfigError(where, f"not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(where, "not TOML: nested too deep") from None
    if has_nul:
        raise ConfigError(where, "contains a NUL character, which no name, path or URL may have; remove it")
    return values


def read_file(path: Path) -> dict[str, Any]:
    """The values in a TOML file. Raises ConfigError naming it."""
    try:
        # Reading a device or a pipe might never end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(str(path), "not a plain file; give a TOML file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(str(path), f"larger than {MAX_FILE_BYTES >> 10} KiB, the limit for settings")
        return read_toml(str(path), content.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read ({type(error).__name__}); check the path") from None


def _has_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _site(path: Path) -> dict[str, Any]:
    """The values of a site's file, or folder with `base.toml` and `caches/*.toml`. Raises ConfigError."""
    if not path.is_dir():
        return read_file(path)
    base = path / "base.toml"
    values = read_file(base) if base.exists() else {}
    caches = values.get("caches", {})
    if not isinstance(caches, dict):
        raise ConfigError(f"{base}: caches", "must be a table; see conf/caches/example.toml.sample")
    caches = dict(caches)
    for file in sorted((path / "caches").glob("*.toml")):
        cache = read_file(file)
        if cache.get("name") != file.stem:
            raise ConfigError(f"{file}: name", f"must be {file.stem!r}, the name of its file")
        if file.stem in caches:
            raise ConfigError(str(file), f"the same cache is defined in {base}; keep one of them")
        caches[file.stem] = cache
    return {**values, "caches": caches}


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    """The values of variables like `CACHECAST_PLAN__HORIZON`."""
    values: dict[str, Any] = {}
    for key, text in env.items():
        section, separator, name = key.removeprefix(ENV_PREFIX).lower().partition("__")
        if key.startswith(ENV_PREFIX) and separator:
            values.setdefault(section, {})[name] = _environment_value(text)
    return values


def _environment_value(text: str) -> object:
    """The value of a TOML array or table; any other text as it is, for pydantic to convert."""
    if text.startswith(("[", "{")):
        return read_toml("environment", f"value = {text}")["value"]
    return text


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base`, overridden by the values of `over`, table by table."""
    both = dict(base)
    for key, value in over.items():
        known = both.get(key)
        both[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both
