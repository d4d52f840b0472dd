"""The layers that settings come from: shipped file, site, environment, command line; later ones win."""

import dataclasses
import functools
import json
import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from features.common.errors import ConfigError
from features.common.files import check_private

ENV_PREFIX = "CACHECAST_"
SHIPPED = "conf/base.toml"
SECRETS = "secrets.toml"  # name of the file with a site's secrets, in the folder of its settings
MAX_FILE_BYTES = 2**20  # largest file of settings: a parser can take hours for a few lines of a larger one


@dataclasses.dataclass(frozen=True)
class Layer:
    """The values of one file, one variable or one option, and how messages name it."""

    name: str
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Layered:
    """The merged `values` of `layers`; later layers override earlier ones."""

    values: dict[str, Any]
    layers: tuple[Layer, ...]

    def where(self, *paths: Sequence[str | int]) -> str:
        """The name of the last layer that has the setting at one of `paths`, or else the table around it."""
        longest = max(map(len, paths))
        for length in range(longest, 0, -1):
            for layer in reversed(self.layers):
                if any(_has(layer.values, path[:length]) for path in paths):
                    return layer.name
        return self.layers[-1].name


def layered(
    conf: Path | None = None,
    *,
    base: Path | None = None,
    tables: str | None = None,
    env: Mapping[str, str] = os.environ,
) -> Layered:
    """The values of all layers.

    `conf`: the site's file or folder, by default that of CACHECAST_CONF; it overrides `base`, another file or
    folder. `tables`: the root from the command line, which overrides all others. Raises ConfigError.
    """
    path = conf or (Path(env["CACHECAST_CONF"]) if env.get("CACHECAST_CONF") else None)
    places = [place for place in (base, path) if place is not None]
    sites = [layer for place in places for layer in (*_site(place), *_secrets(place))]
    option = [] if tables is None else [Layer("--tables", {"tables": {"root": tables}})]
    defaults = read_toml(SHIPPED, resources.files("conf").joinpath("base.toml").read_text())
    layers = (Layer(SHIPPED, defaults), *sites, *_environment(env), *option)
    return Layered(functools.reduce(_merged, (layer.values for layer in layers), {}), layers)


def _has(values: object, path: Sequence[str | int]) -> bool:
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[str(part)]
    return True


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


def toml_text(text: str) -> str:
    """A TOML string; JSON's differ in DEL alone, which TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


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


def _site(path: Path) -> list[Layer]:
    """The layers of a site's file, or folder with `base.toml` and `caches/*.toml`. Raises ConfigError."""
    if not path.is_dir():
        return [Layer(str(path), read_file(path))]
    base = path / "base.toml"
    layers = [Layer(str(base), read_file(base))] if base.exists() else []
    others = {file.name for file in path.glob("*.toml")} - {SECRETS}
    if others and not layers:
        raise ConfigError(str(path), f"has no base.toml, and {min(others)} is not read; name that file")
    caches = layers[0].values.get("caches", {}) if layers else {}
    if not isinstance(caches, dict):
        raise ConfigError(f"{base}: caches", "must be a table; see conf/caches/example.toml.sample")
    for file in sorted((path / "caches").glob("*.toml")):
        cache = read_file(file)
        if cache.get("name") != file.stem:
            raise ConfigError(f"{file}: name", f"must be {file.stem!r}, the name of its file")
        if file.stem in caches:
            raise ConfigError(str(file), f"the same cache is defined in {base}; keep one of them")
        layers.append(Layer(str(file), {"caches": {file.stem: cache}}))
    return layers


def _secrets(path: Path) -> list[Layer]:
    """The secrets of the site whose settings are at `path`. Raises ConfigError if others may read them."""
    file = (path if path.is_dir() else path.parent) / SECRETS
    if not file.exists():
        return []
    check_private(file, "the site's secrets", SECRETS)
    return [Layer(str(file), read_file(file))]


def _environment(env: Mapping[str, str]) -> list[Layer]:
    """A layer for each variable like `CACHECAST_PLAN__HORIZON`."""
    layers = []
    for key, text in env.items():
        section, separator, name = key.removeprefix(ENV_PREFIX).lower().partition("__")
        if key.startswith(ENV_PREFIX) and separator:
            # What is no TOML array or table is for pydantic to convert.
            value = read_toml(key, f"value = {text}")["value"] if text.startswith(("[", "{")) else text
            layers.append(Layer(key, {section: {name: value}}))
    return layers


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base`, overridden by the values of `over`, table by table."""
    both = dict(base)
    for key, value in over.items():
        below = both.get(key)
        both[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both
