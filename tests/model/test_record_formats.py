"""Definitions of record formats: what is refused, and with which words; files become part of a definition."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.table import Table
from rtolap.model.yaml_files import read_definitions

from tests.support.formats.protobuf import descriptor_set, event_file

SCHEMA = json.dumps({"type": "record", "name": "E", "fields": [{"name": "ts", "type": "long"}]})


def read(folder: Path, form: str, more: str = "") -> Table:
    (folder / "table.yaml").write_text(
        f"kind: table\nname: t\ntopic: t\nformat: {form}\ntime: {{column: ts}}\n"
        f"columns: [{{name: ts, type: bigint}}, {{name: s, type: string, path: text}}]\n{more}"
    )
    return read_definitions(folder).tables["t"]


@pytest.mark.parametrize("form", ["json", "{type: json}", "{type: csv, fields: [text, ts]}", "csv"])
def test_a_format_is_a_name_or_has_options(tmp_path: Path, form: str) -> None:
    if form == "csv":
        with pytest.raises(DefinitionError, match="no such field; expected a field of the records: ts, s"):
            read(tmp_path, form)
        return
    table = read(tmp_path, form)
    assert table.record_format.type in ("json", "csv")
    assert table.record_fields == (("text", "ts") if "csv" in form else ("ts", "s"))


def test_a_schema_file_beside_the_definition_becomes_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "event.avsc").write_text(SCHEMA)
    table = read(tmp_path, "{type: avro, schema_file: schemas/event.avsc}")
    assert (table.record_format.schema, table.record_format.schema_file) == (SCHEMA, None)
    (tmp_path / "event.desc").write_bytes(base64.b64decode(descriptor_set(event_file())))
    table = read(tmp_path, "{type: protobuf, schema_file: event.desc, message: test.Event}")
    assert table.record_format.schema == descriptor_set(event_file())


@pytest.mark.parametrize(
    ("form", "match"),
    [
        ("xml", r"table.yaml:4: format: wrong value; expected one of .*avro, .*csv.*; found 'xml'"),
        ("{type: json, delimiter: ';'}", "format.delimiter: no option of json"),
        ("{type: csv, message: M}", "no option of csv; expected one of delimiter, quote, null, fields"),
        ("{type: csv, fields: [ts, text], delimiter: ab}", "expected one ASCII character"),
        ("{type: csv, fields: [ts, text], quote: ab}", "no quote"),
        ("{type: csv, fields: [ts, text], null: 'a,b'}", "no text of null"),
        ("{type: csv, fields: [ts, text, ts]}", r"format.fields\[2\]: no name"),
        ("{type: csv, fields: [ts, tex]}", "found 'text'; did you mean 'tex'"),
        ("avro", "where are the schemas.; expected one of schema, schema_file, registry; found none"),
        ("{type: protobuf, registry: a, schema: b}", "found schema and registry"),
        ("{type: avro, registry: a, schema: b}", "format.schema: not an Avro schema"),
        ("{type: avro, registry: ' ', schema: b}", "not a registry's name"),
        ("{type: avro, registry: 'http://x'}", "not a registry's name"),
        ("{type: avro, schema: '{}'}", "not an Avro schema"),
        ("{type: avro, schema_file: ../secret}", "a path that leads out of it"),
        ("{type: avro, schema_file: absent.avsc}", "found No such file"),
        ("{type: protobuf, registry: default, message: 'a b'}", "not a message's name"),
        ("{type: protobuf, schema: AAAA}", "which message"),
        ("{type: protobuf, schema: '!', message: M}", "in Base64"),
        ("{type: json, envelope: debezium, keys: [ts]}", "not for a stream table"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_expected(tmp_path: Path, form: str, match: str) -> None:
    with pytest.raises(DefinitionError, match=match):
        read(tmp_path, form)


def test_unknown_columns_of_csv_cannot_be_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="unknown_columns: not for csv; expected ignore"):
        read(tmp_path, "{type: csv, fields: [ts, text]}", "unknown_columns: reject\n")
