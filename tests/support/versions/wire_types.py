"""Every type that one process writes and another one reads, found by its place: nobody lists them.

They are the classes of the rooms `protocols`, `metadata` and `model`, of the formats of cubes' files, and of
every module that is named `messages` or `records`. Messages between a query service and its own workers are
left out: both are of one start.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

import msgspec
import rtolap
from pydantic import BaseModel

ROOMS = ("rtolap.protocols.", "rtolap.metadata.", "rtolap.model.", "rtolap.cubes.format.")
ENDINGS = ("messages", "records")
# Trees that are parsed anew from the text that travels, and what does not leave a start of a service.
ONE_START = (
    "rtolap.model.expressions.",
    "rtolap.query.workers.",
    "rtolap.airflow.",
    "rtolap.cubes.build.",
    "rtolap.stack.",
)

WireType = type[msgspec.Struct] | type[BaseModel]


@cache
def wire_types() -> dict[str, WireType]:
    """Return the types by their places below `rtolap`."""
    found: dict[str, WireType] = {}
    for module_name in _modules():
        module = importlib.import_module(module_name)
        for value in vars(module).values():
            if not isinstance(value, type) or value.__module__ != module_name:
                continue
            if not issubclass(value, msgspec.Struct | BaseModel) or value.__name__.startswith("_"):
                continue
            name = f"{module_name.removeprefix('rtolap.')}.{value.__qualname__}"
            found[name] = value
    return dict(sorted(found.items()))


def find_type(name: str) -> WireType:
    """Return the type of that name, wherever it has moved to. Raises KeyError."""
    known = wire_types()
    if name in known:
        return known[name]
    last = name.rpartition(".")[2]
    moved = [kind for other, kind in known.items() if other.rpartition(".")[2] == last]
    if len(moved) != 1:
        raise KeyError(name)
    return moved[0]


def is_strict(kind: WireType) -> bool:
    """Return True for a type that refuses fields that it does not know."""
    if issubclass(kind, BaseModel):
        return kind.model_config.get("extra") == "forbid"
    return kind.__struct_config__.forbid_unknown_fields


def leaves_defaults_out(kind: WireType) -> bool:
    return issubclass(kind, msgspec.Struct) and kind.__struct_config__.omit_defaults


def is_array(kind: WireType) -> bool:
    return issubclass(kind, msgspec.Struct) and kind.__struct_config__.array_like


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(rtolap.__path__, "rtolap."):
        name = module.name
        if name.startswith(ONE_START):
            continue
        if name.startswith(ROOMS) or name.rpartition(".")[2].endswith(ENDINGS):
            yield name
