"""The checks of the format of a topic's records. Pure; every problem with the way to it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.model.formats.avro_schema import SCHEMA_CHARS_MAX, parse_avro_schema
from rtolap.model.formats.protobuf_set import message_of_set
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.loader import Loader, LoaderColumn, SinkMerge
from rtolap.model.problems import Key, Problem, unknown_name
from rtolap.model.table import HEADER, VALUE, Column, Table
from rtolap.model.validation.record_paths import avro_shapes, message_shape, path_problems
from rtolap.model.value_paths import path_text

_OF_FORMAT: dict[str, tuple[str, ...]] = {
    "json": ("envelope", "keys"),
    "csv": ("delimiter", "quote", "null", "fields"),
    "avro": ("schema", "schema_file", "registry", "envelope", "keys"),
    "protobuf": ("schema", "schema_file", "registry", "message"),
}
_SOURCES = (VALUE, "key", "timestamp", "partition", "offset")
_AT: Key = ("format",)
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MESSAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LINE_ENDS = "\r\n"


def format_problems(reads: Table | Loader) -> list[Problem]:
    """Return the problems of the format of a table's or loader's topic. The columns are looked at, too."""
    form = reads.record_format
    found = [*_source_problems(reads), *_foreign_options(form)]
    found += _envelope_problems(form, reads)
    match form.type:
        case "csv":
            found += _csv_problems(form, reads)
        case "avro" | "protobuf":
            faults = _schema_problems(form)
            if form.type == "protobuf":
                faults += _message_problems(form)
            found += faults or _known_path_problems(form, reads)
        case "json":
            pass
    return found


def _wrong(option: str | int, message: str, *, expected: str, found: str, inside: Key = ()) -> Problem:
    return Problem((*_AT, *inside, option), message, expected=expected, found=found)


def _foreign_options(form: RecordFormat) -> list[Problem]:
    own = _OF_FORMAT[form.type]
    fields: tuple[Any, ...] = msgspec.structs.fields(RecordFormat)
    return [
        Problem(
            (*_AT, field.name),
            f"no option of {form.type}",
            expected=f"one of {', '.join(own)}" if own else "no option",
            found=repr(getattr(form, field.name))[:80],
        )
        for field in fields
        if field.name != "type" and field.name not in own and getattr(form, field.name) != field.default
    ]


def _columns(reads: Table | Loader) -> tuple[Column | LoaderColumn, ...]:
    return reads.columns


def _source_problems(reads: Table | Loader) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, column in enumerate(_columns(reads)):
        source, key = column.source, ("columns", place, "source")
        name = source.removeprefix(HEADER) if source.startswith(HEADER) else None
        if source not in _SOURCES and not name:
            expected = f"one of {', '.join(_SOURCES)}, {HEADER}<name>"
            yield unknown_name(key, "unknown source", source, _SOURCES, expected)
        elif source != VALUE and column.path is not None:
            expected = "no path: only values have parts"
            yield Problem((*key[:2], "path"), "a path in a source", expected=expected, found=source)
        elif source != VALUE and getattr(column, "expression", None) is not None:
            yield Problem(key, "a computed column is not read", expected="no source", found=source)
        elif source != VALUE and source in seen:
            yield Problem(key, "another column reads it", expected="a source once", found=source)
        seen.add(source)


def _envelope_problems(form: RecordFormat, reads: Table | Loader) -> list[Problem]:
    if form.envelope == "none":
        return (
            [_wrong("keys", "keys of no envelope", expected="an envelope beside", found=", ".join(form.keys))]
            if form.keys
            else []
        )
    if isinstance(reads, Table):
        expected = "none: changes of rows are for loaders of stored tables"
        return [_wrong("envelope", "not for a stream table", expected=expected, found=form.envelope)]
    found = []
    if not form.keys or len(set(form.keys)) < len(form.keys):
        expected = "the table's key columns, each once"
        found.append(_wrong("keys", "no keys", expected=expected, found=", ".join(form.keys) or "none"))
    if reads.sink.merge != SinkMerge():
        at: Key = ("sink", "merge")
        expected = "no key: the envelope says which rows are deleted"
        found.append(Problem(at, "not beside an envelope", expected=expected, found=reads.sink.merge.type))
    if reads.watermark_records == "field":
        at = ("watermark_records",)
        found.append(Problem(at, "not with an envelope", expected="header", found="field"))
    if reads.sink.target == "starrocks":
        at = ("sink", "target")
        found.append(Problem(at, "not with an envelope", expected="rtolap or doris", found="starrocks"))
    return found


def _csv_problems(form: RecordFormat, reads: Table | Loader) -> list[Problem]:
    found = []
    is_char = len(form.delimiter) == 1 and form.delimiter.isascii() and form.delimiter not in _LINE_ENDS
    if not is_char or form.delimiter in (form.quote, "\0"):
        expected = "one ASCII character that is neither the quote nor the end of a line"
        found.append(_wrong("delimiter", "no delimiter", expected=expected, found=repr(form.delimiter)))
    if len(form.quote) > 1 or not form.quote.isascii() or form.quote in (*_LINE_ENDS, "\0"):
        expected = "one ASCII character that is not the end of a line, or nothing"
        found.append(_wrong("quote", "no quote", expected=expected, found=repr(form.quote)))
    if any(char and char in form.null for char in (*_LINE_ENDS, form.delimiter, form.quote)):
        expected = "a text without delimiter, quote and ends of lines"
        found.append(_wrong("null", "no text of null", expected=expected, found=repr(form.null)))
    if reads.unknown_columns != "ignore":
        expected = "ignore: fields of csv have no names in a record"
        found.append(
            Problem(("unknown_columns",), "not for csv", expected=expected, found=reads.unknown_columns)
        )
    names = form.fields or (reads.record_fields if isinstance(reads, Table) else ())
    for place, name in enumerate(names):
        if form.fields and (not name or name in names[:place]):
            expected = "a name of its own for each field"
            found.append(_wrong(place, "no name", expected=expected, found=repr(name), inside=("fields",)))
    if names:
        found += _unread(names, reads)
    return found


def _unread(names: Sequence[str], reads: Table | Loader) -> list[Problem]:
    """Return a problem for each column whose path is no field."""
    expected = f"a field of the records: {', '.join(names)}"
    paths: dict[Key, str] = {
        ("columns", place, "path" if column.path else "name"): path_text(column.json_path)
        for place, column in enumerate(_columns(reads))
        if getattr(column, "expression", None) is None and column.source == VALUE
    }
    if reads.watermark_records == "field":
        paths["watermark_field",] = reads.watermark_field
    return [
        unknown_name(key, "no such field", path, names, expected)
        for key, path in paths.items()
        if path not in names
    ]


def _known_path_problems(form: RecordFormat, reads: Table | Loader) -> list[Problem]:
    """Return the problems of paths in records whose only schema is part of the definition."""
    if form.schema is None or form.registry is not None:
        return []
    if form.type == "avro":
        return path_problems(_columns(reads), avro_shapes(parse_avro_schema(form.schema)), form.envelope)
    try:
        message = message_of_set(form.schema, form.message or "")
    except DefinitionError as error:
        return [_wrong("schema", error.message, expected=str(error.expected), found=str(error.found))]
    return path_problems(_columns(reads), [message_shape(message)], form.envelope)


def _schema_problems(form: RecordFormat) -> list[Problem]:
    given = [name for name in ("schema", "schema_file", "registry") if getattr(form, name) is not None]
    if form.type == "avro" and form.registry is not None and len(given) == 2:
        # the other one is the reader's
        found = _schema_problems(msgspec.structs.replace(form, registry=None))
        return found + _schema_problems(msgspec.structs.replace(form, schema=None, schema_file=None))
    if len(given) != 1:
        expected = "one of schema, schema_file, registry"
        return [
            Problem(_AT, "where are the schemas?", expected=expected, found=" and ".join(given) or "none")
        ]
    if form.schema_file is not None:
        expected = "its content as schema: only definitions that are read from a folder name files"
        return [
            Problem(
                (*_AT, "schema_file"),
                "a file beside no definition",
                expected=expected,
                found=form.schema_file,
            )
        ]
    if form.registry is not None:
        if _REGISTRY.fullmatch(form.registry):
            return []
        expected = "the name of a registry: letters, digits, '.', '_' and '-', at most 64"
        return [_wrong("registry", "not a registry's name", expected=expected, found=repr(form.registry))]
    assert form.schema is not None, "one of the three is given"
    if form.type == "avro":
        try:
            parse_avro_schema(form.schema)
        except DefinitionError as error:
            return [_wrong("schema", error.message, expected=str(error.expected), found=str(error.found))]
        return []
    try:
        base64.b64decode(form.schema, validate=True)
    except (binascii.Error, ValueError) as error:
        expected = "a FileDescriptorSet (protoc --include_imports --descriptor_set_out) in Base64"
        return [_wrong("schema", "no descriptors", expected=expected, found=str(error))]
    if len(form.schema) > SCHEMA_CHARS_MAX:
        expected = f"at most {SCHEMA_CHARS_MAX} characters"
        return [_wrong("schema", "too large", expected=expected, found=str(len(form.schema)))]
    return []


def _message_problems(form: RecordFormat) -> list[Problem]:
    if form.message is None:
        if form.registry is not None:
            return []  # each record says which message it is
        return [_wrong("message", "which message?", expected="its full name, as shop.Order", found="none")]
    if _MESSAGE.fullmatch(form.message):
        return []
    return [_wrong("message", "not a message's name", expected="shop.Order", found=repr(form.message))]
