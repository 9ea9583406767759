"""Avro schemas: JSON text → a tree of types, with named types resolved. Pure.

A named type may hold itself, so the tree may be a graph with cycles: whoever walks it bounds the depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.column_types import DECIMAL_PRECISION_MAX

Kind = Literal[
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "record",
    "enum",
    "array",
    "map",
    "union",
    "fixed",
]
SCHEMA_CHARS_MAX = 256 * 1024
_PRIMITIVE: tuple[Kind, ...] = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEPTH_MAX = 64
_FIXED_BYTES_MAX = 1 << 20
# logical type → the kinds that may carry it; on any other kind, and every other one, it says nothing
_LOGICAL: dict[str, tuple[Kind, ...]] = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "timestamp-nanos": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "local-timestamp-nanos": ("long",),
}


@dataclass(eq=False, slots=True)
class AvroType:
    """A type of a schema.

    Attributes:
        logical: the logical type, where it changes what the value means.
        size: fixed: bytes.
        fields: record: its fields in order.
        aliases: record: other names of fields, by their name.
        defaults: record: values of fields that are absent, as they stand in JSON, by their name.
        items: array: the type of an item; map: that of a value.
        branches: union: its types in order.
    """

    kind: Kind
    name: str = ""
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: list[tuple[str, AvroType]] = field(default_factory=list)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()

    def __str__(self) -> str:
        if self.logical is not None:
            return f"{self.logical} ({self.kind})"
        return f"{self.kind} {self.name}".strip()


def parse_avro_schema(text: str) -> AvroType:
    """Return the record that the schema describes. Raises DefinitionError for anything else."""
    if len(text) > SCHEMA_CHARS_MAX:
        raise _wrong(f"at most {SCHEMA_CHARS_MAX} characters", str(len(text)))
    try:
        declared = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _wrong("an Avro schema, which is JSON", str(error)) from error
    root = _Parser().type_of(declared, "", 0)
    if root.kind != "record":
        raise _wrong("a schema of type record", str(root))
    return root


class _Parser:
    """The types that have been named so far, by full name."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type_of(self, declared: Any, space: str, depth: int) -> AvroType:
        if depth > _DEPTH_MAX:
            raise _wrong(f"at most {_DEPTH_MAX} types inside of each other", "more")
        if isinstance(declared, str):
            return self._called(declared, space)
        if isinstance(declared, list):
            branches = tuple(self.type_of(each, space, depth + 1) for each in declared)
            if not branches or any(branch.kind == "union" for branch in branches):
                raise _wrong(
                    "a union of one or more types that are no unions",
                    msgspec.json.encode(declared).decode()[:80],
                )
            return AvroType("union", branches=branches)
        if not isinstance(declared, dict) or "type" not in declared:
            raise _wrong("a type: a name, a list or an object with a type", repr(declared)[:80])
        kind = declared["type"]
        if not isinstance(kind, str):
            return self.type_of(kind, space, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(declared, space, depth)
            case "enum":
                made = self._named_type(declared, "enum", space)
                made.symbols = tuple(map(str, _list(declared, "symbols")))
                return made
            case "fixed":
                made = self._named_type(declared, "fixed", space)
                made.size = _number(declared, "size", 0, _FIXED_BYTES_MAX)
                return _with_logical(made, declared)
            case "array":
                return AvroType("array", items=self.type_of(declared.get("items"), space, depth + 1))
            case "map":
                return AvroType("map", items=self.type_of(declared.get("values"), space, depth + 1))
            case _ if kind in _PRIMITIVE:
                return _with_logical(AvroType(kind), declared)
            case _:
                return self._called(kind, space)

    def _record(self, declared: dict[str, Any], space: str, depth: int) -> AvroType:
        made = self._named_type(declared, "record", space)
        inner = made.name.rpartition(".")[0]
        for each in _list(declared, "fields"):
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise _wrong(f"fields of record {made.name} with names", repr(each)[:80])
            name = each["name"]
            made.fields.append((name, self.type_of(each.get("type"), inner, depth + 1)))
            if "aliases" in each:
                made.aliases[name] = tuple(map(str, _list(each, "aliases")))
            if "default" in each:
                made.defaults[name] = each["default"]
        names = [name for name, _ in made.fields]
        if len(set(names)) < len(names):
            raise _wrong(f"fields of record {made.name} with names of their own", ", ".join(names)[:80])
        return made

    def _named_type(self, declared: dict[str, Any], kind: Kind, space: str) -> AvroType:
        name = declared.get("name")
        if not isinstance(name, str) or not name:
            raise _wrong(f"a name of a type {kind}", repr(name))
        if "." not in name and (own := declared.get("namespace", space)):
            name = f"{own}.{name}"
        if name in self._named:
            raise _wrong("each type defined once", f"{name} twice")
        made = self._named[name] = AvroType(kind, name)
        return made

    def _called(self, name: str, space: str) -> AvroType:
        for kind in _PRIMITIVE:
            if name == kind:
                return AvroType(kind)
        found = self._named.get(name if "." in name or not space else f"{space}.{name}") or self._named.get(
            name
        )
        if found is None:
            raise _wrong("a primitive type, or a type that is defined before", repr(name)[:80])
        return found


def _with_logical(made: AvroType, declared: dict[str, Any]) -> AvroType:
    logical = declared.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "decimal":
        made.precision = _number(declared, "precision", 1, 10_000)
        made.scale = _number({"scale": 0} | declared, "scale", 0, made.precision)
        if made.precision > DECIMAL_PRECISION_MAX:
            return made  # read as bytes, which fit no number
    made.logical = logical
    return made


def _list(declared: dict[str, Any], key: str) -> list[Any]:
    found = declared.get(key)
    if not isinstance(found, list):
        raise _wrong(f"{key} of {declared.get('name')}: a list", repr(found)[:80])
    return found


def _number(declared: dict[str, Any], key: str, least: int, most: int) -> int:
    found = declared.get(key)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise _wrong(f"{key}: a whole number from {least} to {most}", repr(found)[:80])
    return found


def _wrong(expected: str, found: str) -> DefinitionError:
    return DefinitionError("not an Avro schema that can be read", expected=expected, found=found)
