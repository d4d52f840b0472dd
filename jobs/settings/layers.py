"""Where settings come from, one layer over the other: shipped file, site, environment, command line."""

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
MOST_BYTES = 2**20
"""No file of settings is larger; a few such lines can take a parser hours."""


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
        values = tomllib.loads(text)
        has_nul = _has_nul(values)
    except ValueError as error:
        raise ConfigError(where, f"not TOML that can be read: {error}") from None
    except RecursionError:
        raise ConfigError(where, "not TOML that can be read: nested too deep") from None
    if has_nul:
        raise ConfigError(where, "holds a NUL character, which no name, path or URL can; remove it")
    return values


def read_file(path: Path) -> dict[str, Any]:
    """The values in a TOML file. Raises ConfigError naming it."""
    try:
        # A device has no end, and a pipe may never begin.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(str(path), "not a plain file; give a TOML file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(str(path), f"larger than {MOST_BYTES >> 10} KiB; settings are not so long")
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
            raise ConfigError(str(file), f"the same cache stands in {base} too; keep one of them")
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
