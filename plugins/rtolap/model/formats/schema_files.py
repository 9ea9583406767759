"""Schemas of records that stand in files beside a definition become part of it.

So every host reads the same one: a definition in the cluster names no file.
"""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.model.formats.record_format import RecordFormat

_FILE_BYTES_MAX = 192 * 1024  # in Base64 it still fits a node of the metadata with all the rest


def with_schema(form: RecordFormat, folder: Path) -> RecordFormat:
    """Return the format with the content of its schema file, if it names one, in place of the name.

    The file is in `folder`, which holds the definition, or below. DefinitionError: it is not, or cannot be
    read.
    """
    if form.schema_file is None or form.schema is not None:
        return form
    content = _content(folder, form.schema_file)
    if form.type == "protobuf":
        return msgspec.structs.replace(form, schema=base64.b64encode(content).decode(), schema_file=None)
    try:
        return msgspec.structs.replace(form, schema=content.decode(), schema_file=None)
    except UnicodeDecodeError as error:
        raise _unreadable(form.schema_file, str(error)) from error


def _content(folder: Path, name: str) -> bytes:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise _unreadable(name, "a path that leads out of it")
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(name, error.strerror) from error
    if len(content) > _FILE_BYTES_MAX:
        raise _unreadable(name, f"more than {_FILE_BYTES_MAX} bytes")
    return content


def _unreadable(name: str, found: str | None) -> DefinitionError:
    return DefinitionError(
        f"the schema file {name} cannot be read",
        expected="a file in the folder of the definition, or below",
        found=found,
    )
