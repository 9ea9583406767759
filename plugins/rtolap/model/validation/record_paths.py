"""The checks of columns' paths against the schema of records, where the definition holds it. Pure.

A path may name a field that the schema lacks: its column is null. A path that leads into something that has
no items, or no names, is refused, and so is one that ends at something that holds other values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rtolap.model.formats.avro_schema import AvroType
from rtolap.model.formats.protobuf_set import TIMESTAMP, WRAPPERS, is_map, key_number
from rtolap.model.loader import LoaderColumn
from rtolap.model.problems import Key, Problem
from rtolap.model.table import VALUE, Column
from rtolap.model.value_paths import index_of, path_text


class Shape(NamedTuple):
    """The type of a value, as far as paths lead into it.

    Attributes:
        name: as errors say it.
        field: returns what a value may be that is inside by this name; nothing for an unknown name. None: it
            has no names.
        items: returns what its items may be. None: it has none.
        is_plain: a column may read it.
    """

    name: str
    field: Callable[[str], Sequence[Shape]] | None = None
    items: Callable[[], Sequence[Shape]] | None = None
    is_plain: bool = False


_UNREADABLE = re.compile(r"[\x00-\x1f\"\\]")  # names in JSON that no reader of typed values takes


def step_problems(position: int, column: Column | LoaderColumn) -> list[Problem]:
    """Return the problem of a path with a step that no reader of records can look for."""
    key: Key = ("columns", position, "path")
    if not all(column.json_path):
        return [Problem(key, "an empty step in a path", expected="a.b[0].c", found=repr(column.path))]
    if any(_UNREADABLE.search(step) for step in column.json_path):
        expected = 'names without control characters, " and \\'
        return [Problem(key, "a name that cannot be read", expected=expected, found=repr(column.path))]
    return []


def path_problems(
    columns: Sequence[Column | LoaderColumn], record: Sequence[Shape], envelope: str
) -> list[Problem]:
    """Return the problems of the columns' paths in records of this shape. With an envelope the columns are
    those of the row inside."""
    if envelope == "debezium":
        record = [row for each in record if each.field is not None for row in each.field("after")]
    found = []
    for place, column in enumerate(columns):
        if column.source == VALUE and getattr(column, "expression", None) is None:
            key: Key = ("columns", place, "path" if column.path else "name")
            problem = _problem(key, column.json_path, record)
            found += [] if problem is None else [problem]
    return found


def _problem(key: Key, path: tuple[str, ...], shapes: Sequence[Shape]) -> Problem | None:
    for depth, step in enumerate(path):
        if not shapes:
            return None
        if index_of(step) is None:
            inside = [each.field(step) for each in shapes if each.field is not None]
            expected = "a record, a message or a map"
        else:
            inside = [each.items() for each in shapes if each.items is not None]
            expected = "an array"
        if not inside:
            message = f"the path {path_text(path)} leads into what has no {step}"
            found = f"{shapes[0].name} at {path_text(path[:depth])}"
            return Problem(key, message, expected=f"{expected} there", found=found)
        shapes = [shape for alternatives in inside for shape in alternatives]
    if not shapes or any(shape.is_plain for shape in shapes):
        return None
    message = f"the path {path_text(path)} ends at what holds other values"
    return Problem(key, message, expected="a path to a value", found=shapes[0].name)


def avro_shapes(kind: AvroType) -> list[Shape]:
    """Return what a value of the type may be, other than null."""
    match kind.kind:
        case "null":
            return []
        case "union":
            return [shape for branch in kind.branches for shape in avro_shapes(branch)]
        case "record":
            fields = dict(kind.fields)
            return [Shape(str(kind), lambda name: avro_shapes(fields[name]) if name in fields else [])]
    items = kind.items
    if items is None:
        return [Shape(str(kind), is_plain=True)]
    if kind.kind == "map":
        return [Shape(str(kind), lambda name: avro_shapes(items))]
    return [Shape(str(kind), items=lambda: avro_shapes(items))]


def message_shape(message: Descriptor) -> Shape:
    fields = message.fields_by_name
    is_plain = message.full_name == TIMESTAMP or message.full_name in WRAPPERS
    return Shape(
        f"message {message.full_name}",
        lambda name: [_field_shape(fields[name])] if name in fields else [],
        is_plain=is_plain,
    )


def _field_shape(field: FieldDescriptor) -> Shape:
    message = field.message_type
    if message is not None and is_map(field):
        key, value = (message.fields_by_number[number] for number in (1, 2))
        has_texts = key.type == FieldDescriptor.TYPE_STRING
        return Shape(
            f"map {field.name}",
            lambda name: (
                [_value_shape(value)]
                if has_texts or key_number(key, name) is not None
                else [Shape(f"map {field.name}, which has no key {name!r}")]
            ),
        )
    if field.is_repeated:
        return Shape(f"repeated field {field.name}", items=lambda: [_value_shape(field)])
    return _value_shape(field)


def _value_shape(field: FieldDescriptor) -> Shape:
    if field.message_type is None:
        return Shape(f"field {field.name}", is_plain=True)
    return message_shape(field.message_type)
