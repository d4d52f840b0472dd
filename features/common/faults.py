"""Settings checked by pydantic; a fault is reported with the key, its value and what is allowed."""

import difflib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pydantic
from pydantic_core import ErrorDetails, PydanticCustomError

from features.common.errors import ConfigError

Keys = tuple[str | int, ...]
"""The path of a setting, for example `("plan", "horizon")`."""

_SHOWN = frozenset(
    {"literal_error", "enum", "less_than", "less_than_equal", "greater_than", "greater_than_equal"}
    | {"int_type", "int_parsing", "int_from_float", "float_type", "float_parsing", "bool_parsing"}
)
"""Kinds of errors whose value is shown: no secret can have one."""
_SHOWABLE = re.compile(r"[-+]?[0-9.]{1,20} ?[A-Za-z%]{0,5}|[a-z_]{1,12}")
_MOST_VALUE_CHARS = 60
ModelType = TypeVar("ModelType", bound=pydantic.BaseModel)


class Fault(NamedTuple):
    """What is wrong with the settings `keys`; `what`: in words, with the first of them.

    `has_remedy`: whether `what` also says what to do; if not, the reader is sent to where keys are explained.
    """

    keys: Sequence[Keys]
    what: str
    has_remedy: bool


def validated(model: type[ModelType], values: Mapping[str, Any], *, where: str, see: str) -> ModelType:
    """`values` of the file `where` as `model`; `see`: the page or file that explains its keys.

    Raises ConfigError, which names the file, the path of the first wrong key, and the remedy.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        fault = first_fault(model, error)
        raise ConfigError(where, fault.what if fault.has_remedy else f"{fault.what}; see {see}") from None


def with_defaults(values: Mapping[str, Any], table: str, rows: str) -> dict[str, Any]:
    """`values` with its `table` merged into each of its `rows`; malformed values stay as they are."""
    defaults, given = values.get(table, {}), values.get(rows)
    if not isinstance(defaults, Mapping) or not isinstance(given, Sequence):
        return dict(values)
    merged = [{**defaults, **row} if isinstance(row, Mapping) else row for row in given]
    return {key: value for key, value in values.items() if key != table} | {rows: merged}


def of_keys(what: str, *keys: str) -> PydanticCustomError:
    """An error for a validator to raise that concerns several `keys`, for example `plan.horizon`."""
    paths = [tuple(key.split(".")) for key in keys]
    return PydanticCustomError("of_keys", "{what}", {"what": what, "keys": paths})


def first_fault(
    section: type[pydantic.BaseModel], error: pydantic.ValidationError, *, table: Keys = ()
) -> Fault:
    """The first fault of `section`, which is at `table`; missing keys of one table are reported together."""
    errors = error.errors(include_url=False)
    first = _most_telling(errors)
    keys = (*table, *_keys(first))
    match first["type"]:
        case "extra_forbidden":
            known = list(_known(section, keys[len(table) : -1]))
            meant = difflib.get_close_matches(str(keys[-1]).lower(), known, n=1)
            others = f"remove it, or write one of {', '.join(sorted(known))}"
            remedy = f"did you mean {meant[0]}?" if meant else others
            return Fault([keys], f"unknown key {dotted(keys)}; {remedy}", has_remedy=True)
        case "missing":
            absent = [(*table, *_keys(entry)) for entry in errors if entry["type"] == "missing"]
            absent = [entry for entry in absent if entry[:-1] == keys[:-1]]
            verb = "is" if len(absent) == 1 else "are"
            return Fault(absent, f"{', '.join(map(dotted, absent))} {verb} missing", has_remedy=False)
        case "of_keys":
            concerned = first["ctx"]["keys"]
            return Fault(concerned, f"{dotted(concerned[0])}: {first['msg']}", has_remedy=True)
        case "model_type" | "dict_type" if keys:
            place = dotted(tuple(part for part in keys if isinstance(part, str)))
            header = f"as [[{place}]]" if isinstance(keys[-1], int) else f"once, as [{place}]"
            named = f" or [{place}.NAME]" if first["type"] == "dict_type" else ""
            return Fault(
                [keys], f"{dotted(keys)}: must be a table; write it {header}{named}", has_remedy=True
            )
        case "list_type" | "tuple_type" if isinstance(first["input"], Mapping):
            what = (
                f"{dotted(keys)}: must be a list; if it is one of tables, write [[{dotted(keys)}]] above each"
            )
            return Fault([keys], what, has_remedy=True)
    return Fault([keys], f"{dotted(keys) or 'settings'}: {_rule(first)}", has_remedy=False)


def _most_telling(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """The first error; if that is a missing key, an unknown one of its table, which may be it misspelt."""
    first = errors[0]
    unknown = (
        error
        for error in errors
        if error["type"] == "extra_forbidden" and error["loc"][:-1] == first["loc"][:-1]
    )
    return next(unknown, first) if first["type"] == "missing" else first


def dotted(keys: Keys) -> str:
    """The path of a setting as text, for example `plan.horizon`."""
    return ".".join(map(str, keys))


def _keys(error: ErrorDetails) -> Keys:
    """The setting's path, without the alternatives of its type that pydantic appends."""
    # The last part of an unknown key is what was given, whatever that is.
    n_known = len(error["loc"]) - (error["type"] == "extra_forbidden")
    known = (part for part in error["loc"][:n_known] if "[" not in str(part))
    return (*known, *error["loc"][n_known:])


def _rule(error: ErrorDetails) -> str:
    rule, value = error["msg"].removeprefix("Value error, "), error["input"]
    # Longer text may be a secret that was given to the wrong key.
    if error["type"] in _SHOWN and _SHOWABLE.fullmatch(str(value)):
        return f"{repr(value)[:_MOST_VALUE_CHARS]} {rule.removeprefix('Input ')}"
    return rule


def _known(section: type[pydantic.BaseModel], keys: Keys) -> Iterator[str]:
    """The keys of the table at `keys` in `section`."""
    table: Any = section
    for key in keys:
        fields = table.model_fields
        # A key that is no field is a name that the site chose, or a place in a list.
        table = _section_in(fields[key].annotation) if key in fields else table
        if table is None:
            return
    yield from table.model_fields


def _section_in(annotation: Any) -> type[pydantic.BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    return next(filter(None, map(_section_in, typing.get_args(annotation))), None)
