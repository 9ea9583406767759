"""Records as builtins with every field, also those that the record's encoding leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec


def complete(value: Any) -> Any:
    """Return what `msgspec.to_builtins` returns, with the fields that have their default.

    What refuses unknown fields writes no defaults, so that a service of an earlier version refuses a record
    only where it says something that is new. Who reads a definition is shown all of it.
    """
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.array_like:
        config, found = value.__struct_config__, {}
        if config.tag_field is not None:
            found[config.tag_field] = config.tag
        for name, encoded in _names(type(value)):
            said = getattr(value, name)
            if said is not msgspec.UNSET:
                found[encoded] = complete(said)
        return found
    if isinstance(value, Mapping):
        return {msgspec.to_builtins(key): complete(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [complete(each) for each in value]
    return msgspec.to_builtins(value)


@cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Return the fields' names, each with the one that it is encoded by: msgspec reads the annotations anew
    each time that it is asked."""
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))
