"""Builtins of any type, drawn by its annotations: what another version could have written."""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel
from rtolap.base.errors import RtolapError

from tests.support.versions.wire_types import WireType

DEPTH_MAX = 6
ATTEMPTS_MAX = 400
WORDS = ("a", "b1", "c_2", "daily", "1", "2013-11-03")
REFUSED = (msgspec.MsgspecError, ValueError, TypeError, RtolapError)


class NotDrawn(Exception):
    """The type takes only values that nobody draws by chance."""


class Field(typing.NamedTuple):
    name: str
    annotation: Any
    required: bool


@cache
def fields_of(kind: WireType) -> tuple[Field, ...]:
    """Return the fields as they are written."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if issubclass(kind, BaseModel):
        return tuple(
            Field(field.alias or name, hints[name], field.is_required())
            for name, field in kind.model_fields.items()
        )
    return tuple(
        Field(field.encode_name, hints[field.name], field.required) for field in msgspec.structs.fields(kind)
    )


def read(kind: WireType, value: Any) -> Any:
    """Return the message, as a service decodes it. Raises one of REFUSED."""
    if issubclass(kind, BaseModel):
        return kind.model_validate(value)
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


def drawn(kind: WireType, seed: str, *, optional: float) -> Any:
    """Return a message that the type reads, as JSON. `optional`: share of the fields with defaults that it
    has. Raises NotDrawn."""
    for attempt in range(ATTEMPTS_MAX):
        value = _struct(kind, random.Random(f"{seed} {attempt}"), optional, DEPTH_MAX)
        try:
            read(kind, value)
        except REFUSED:
            continue
        return value
    raise NotDrawn(kind)


def _struct(kind: WireType, drawn_by: random.Random, optional: float, depth: int) -> Any:
    found: dict[str, Any] = {}
    config = getattr(kind, "__struct_config__", None)
    if config is not None and config.array_like:
        return [_value(field.annotation, drawn_by, optional, depth - 1) for field in fields_of(kind)]
    if config is not None and config.tag_field is not None:
        found[config.tag_field] = config.tag
    for field in fields_of(kind):
        if field.required or (depth > 0 and drawn_by.random() < optional):
            found[field.name] = _value(field.annotation, drawn_by, optional, depth - 1)
    return found


def _value(annotation: Any, drawn_by: random.Random, optional: float, depth: int) -> Any:
    def again(inner: Any) -> Any:
        return _value(inner, drawn_by, optional, depth - 1)

    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return again(arguments[0])
    if origin is typing.Literal:
        return drawn_by.choice(arguments)
    if origin in (typing.Union, types.UnionType):
        small = [each for each in arguments if each is type(None)]
        return again(small[0] if small and depth <= 0 else drawn_by.choice(arguments))
    if isinstance(annotation, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        return again(annotation.__value__)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct | BaseModel):
        return _struct(annotation, drawn_by, optional, depth)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return drawn_by.choice(list(annotation)).value
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is ...):
        return [again(each) for each in arguments]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {} if depth <= 0 else {_key(arguments[0], drawn_by): again(arguments[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence | Set):
        return [again(arguments[0]) for _ in range(drawn_by.randrange(1, 3) if depth > 0 else 0)]
    return _plain(annotation, drawn_by)


def _key(annotation: Any, drawn_by: random.Random) -> str:
    return str(_plain(annotation, drawn_by))


def _plain(annotation: Any, drawn_by: random.Random) -> Any:
    if annotation is type(None):
        return None
    if annotation is bool:
        return drawn_by.random() < 0.5
    if annotation is int:
        return drawn_by.choice((0, 1, 2, 60_000))
    if annotation is float:
        return drawn_by.choice((0.5, 1.0))
    if annotation is bytes:
        return "YWJj"
    if annotation in (dict, Mapping):
        return {}
    if annotation in (list, tuple):
        return []
    return drawn_by.choice(WORDS)
