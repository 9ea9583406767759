"""YAML nodes to frozen structs: strict, and collecting every problem with its line.

The walk follows the struct's types, so its depth is theirs, whatever the document nests or aliases.
A field `window_ms` may also be written `window: 6h`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from msgspec import inspect

from rtolap.base.errors import DefinitionError
from rtolap.model import durations
from rtolap.model.problems import Key, Problem, did_you_mean

_DURATION_SUFFIX = "_ms"
_FOUND_LENGTH_MAX = 60


class _Invalid:
    """A value that could not be read; its problem is recorded already."""


INVALID = _Invalid()
Positions = dict[Key, int]


class NodeReader:
    """A reader of one document. Afterwards `problems` holds its problems, and `positions` the line of each
    key.

    Keys are those of the structs, `window_ms`; `as_written` gives them back as they stand in the document.
    """

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._short: set[Key] = set()
        self.problems: list[Problem] = []
        self.positions: Positions = {}

    def struct(self, node: yaml.Node, kind: type[msgspec.Struct], skip: frozenset[str]) -> Any:
        """Return an instance of `kind`, or INVALID. Keys in `skip` are somebody else's."""
        return self._convert(node, inspect.type_info(kind), (), skip)

    def line_of(self, key: Key) -> int | None:
        """Return the line of the nearest enclosing key in the document."""
        for length in range(len(key), -1, -1):
            if key[:length] in self.positions:
                return self.positions[key[:length]]
        return None

    def as_written(self, key: Key) -> Key:
        return tuple(
            str(step).removesuffix(_DURATION_SUFFIX) if key[: depth + 1] in self._short else step
            for depth, step in enumerate(key)
        )

    def _convert(
        self, node: yaml.Node, kind: inspect.Type, key: Key, skip: frozenset[str] = frozenset()
    ) -> Any:
        self.positions.setdefault(key, node.start_mark.line + 1)
        if isinstance(kind, inspect.UnionType):
            if _is_null(node) and any(isinstance(each, inspect.NoneType) for each in kind.types):
                return None
            kinds = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
            kind = _kind_for(node, kinds)
        if isinstance(kind, inspect.StructType):
            return self._mapping(node, kind, key, skip)
        if isinstance(kind, inspect.VarTupleType):
            return self._sequence(node, kind, key)
        if isinstance(kind, inspect.DictType):
            return self._named(node, kind, key)
        return self._scalar(node, kind, key)

    def _mapping(self, node: yaml.Node, kind: inspect.StructType, key: Key, skip: frozenset[str]) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, key, "a mapping of keys to values")
        self._loader.flatten_mapping(node)
        fields = {field.name: field for field in kind.fields}
        short = {
            name.removesuffix(_DURATION_SUFFIX): name for name in fields if name.endswith(_DURATION_SUFFIX)
        }
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            written = str(key_node.value)
            if written in skip:
                continue
            name = short.get(written, written)
            self.positions[(*key, name)] = key_node.start_mark.line + 1
            if name not in fields:
                self._unknown(
                    key_node, key, written, [*short, *(n for n in fields if n not in short.values())]
                )
            elif name in values:
                self._wrong(key_node, (*key, written), "every key once", found=f"{written} twice")
            elif written in short:
                self._short.add((*key, name))
                values[name] = self._duration(value_node, fields[name].type, (*key, name))
            else:
                values[name] = self._convert(value_node, fields[name].type, (*key, name))
        for field in kind.fields:
            if field.required and field.name not in values:
                self._wrong(node, key, f"the key {field.name}", found="none", message="a key is missing")
                values[field.name] = INVALID
        if any(value is INVALID for value in values.values()):
            return INVALID
        return kind.cls(**values)

    def _sequence(self, node: yaml.Node, kind: inspect.VarTupleType, key: Key) -> Any:
        if not isinstance(node, yaml.SequenceNode):
            return self._wrong(node, key, "a list")
        items = tuple(
            self._convert(item, kind.item_type, (*key, position)) for position, item in enumerate(node.value)
        )
        return INVALID if any(item is INVALID for item in items) else items

    def _named(self, node: yaml.Node, kind: inspect.DictType, key: Key) -> Any:
        """Return a mapping whose keys are names of the document's own choice."""
        if not isinstance(node, yaml.MappingNode):
            return self._wrong(node, key, "a mapping of names to values")
        self._loader.flatten_mapping(node)
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            name = str(key_node.value)
            self.positions[(*key, name)] = key_node.start_mark.line + 1
            if name in values:
                values[name] = self._wrong(key_node, (*key, name), "every name once", found=f"{name} twice")
            else:
                values[name] = self._convert(value_node, kind.value_type, (*key, name))
        return INVALID if any(value is INVALID for value in values.values()) else values

    def _scalar(self, node: yaml.Node, kind: inspect.Type, key: Key) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self._wrong(node, key, _describe(kind))
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            return self._wrong(node, key, _describe(kind), message=f"cannot be read ({error})")
        if isinstance(kind, inspect.LiteralType):
            if value in kind.values and isinstance(value, str):
                return value
            hint = did_you_mean(str(value), map(str, kind.values))
            return self._wrong(node, key, _describe(kind), hint=hint)
        if isinstance(kind, inspect.FloatType) and type(value) in (int, float):
            return float(value)
        wanted = {inspect.StrType: str, inspect.IntType: int, inspect.BoolType: bool}.get(type(kind))
        if wanted is None or type(value) is not wanted:
            hint = "put it in quotes" if wanted is str and value is not None else ""
            return self._wrong(node, key, _describe(kind), hint=hint)
        return value

    def _duration(self, node: yaml.Node, kind: inspect.Type, key: Key) -> Any:
        self.positions[key] = node.start_mark.line + 1
        if _is_null(node) and isinstance(kind, inspect.UnionType):
            return None
        if isinstance(node, yaml.ScalarNode):
            try:
                return durations.parse_duration_ms(node.value)
            except DefinitionError:
                return self._wrong(node, key, durations.EXPECTED)
        return self._wrong(node, key, durations.EXPECTED)

    def _unknown(self, node: yaml.Node, key: Key, written: str, known: list[str]) -> None:
        self.problems.append(
            Problem(
                (*key, written),
                "unknown key",
                expected=f"one of {', '.join(known)}",
                found=repr(written),
                hint=did_you_mean(written, known),
                line=node.start_mark.line + 1,
            )
        )

    def _wrong(
        self,
        node: yaml.Node,
        key: Key,
        expected: str,
        *,
        found: str | None = None,
        message: str = "wrong value",
        hint: str = "",
    ) -> _Invalid:
        line = node.start_mark.line + 1
        self.problems.append(
            Problem(key, message, expected=expected, found=found or _found(node), hint=hint, line=line)
        )
        return INVALID


def _kind_for(node: yaml.Node, kinds: list[inspect.Type]) -> inspect.Type:
    """Return the kind that the node is read as: of a mapping, the structure among them; else the other."""
    structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    others = [kind for kind in kinds if not isinstance(kind, inspect.StructType)]
    (kind,) = structs if structs and (isinstance(node, yaml.MappingNode) or not others) else others
    return kind


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _found(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    text = str(node.value)
    if len(text) > _FOUND_LENGTH_MAX:
        text = text[:_FOUND_LENGTH_MAX] + "…"
    kind = node.tag.rpartition(":")[2]
    return f"{text!r} ({kind})" if text else "nothing"


def _describe(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case inspect.StrType():
            return "text"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
        case inspect.BoolType():
            return "true or false"
    return type(kind).__name__.removesuffix("Type").lower()
