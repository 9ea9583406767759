"""Arrays by index and maps by key: Avro and Protobuf give what JSON gives, for receivers and loaders."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from rtolap.base.errors import DefinitionError
from rtolap.column_types import BIGINT, DOUBLE, INT, STRING, ColumnType
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION
from rtolap.events.classify import Leaf
from rtolap.events.decode import EventDecoder
from rtolap.events.formats.avro_reader import AvroReader
from rtolap.events.formats.protobuf_reader import ProtobufReader
from rtolap.events.plan import JsonPlan
from rtolap.events.rejects import Rejects
from rtolap.events.rows import at_path
from rtolap.kafka.schema_registry import RegisteredSchema
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.formats.avro_schema import parse_avro_schema
from rtolap.model.formats.protobuf_set import message_of_set
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.loader import Loader, LoaderColumn
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema
from rtolap.model.validation.loader import loader_problems
from rtolap.protocols.stream_load.messages import SchemaColumn, TableSchema
from rtolap.stored.loader.records.decode import RecordDecoder
from rtolap.stored.loader.target import target_of

from tests.support.formats.avro import encode, framed, zigzag
from tests.support.formats.declared import KnownSchemas
from tests.support.formats.nested import (
    AVRO,
    FORMS,
    PATHS,
    TOO_LARGE,
    add_map,
    drawn,
    recount,
    trip_file,
    written,
)
from tests.support.formats.protobuf import (
    add_message,
    descriptor,
    descriptor_set,
    message_class,
    message_framed,
    proto_file,
)
from tests.support.seeds import so_many

NOW_MS = 1_400_000_000_000
TYPES = {"bigint": "BIGINT", "string": "VARCHAR", "int": "INT", "timestamp": "DATETIME"}
EMPTY: dict[str, Any] = {
    "ts": 1,
    "legs": None,
    "marks": [],
    "prices": [],
    "times": [],
    "tags": {},
    "places": {},
}


def schema_of(form: RecordFormat, *columns: Column) -> Schema:
    every = (Column("ts", "bigint"), *columns)
    table = Table(name="t", topic="t", columns=every, time=TimeColumn("ts", "epoch_ms"), format=form)
    measures = tuple(Measure("count", each.name) for each in every)
    return Schema(table, Cube(name="c", table="t", dimensions=(), measures=measures))


def decode(
    form: RecordFormat, values: Sequence[bytes], *columns: Column, source: KnownSchemas | None = None
) -> tuple[list[dict[str, Any]], Rejects]:
    """Decode as a receiver does."""
    schema = schema_of(form, *columns)
    validate_schema(schema)
    registries = {} if source is None else {"default": source}
    count = len(values)
    decoder = EventDecoder(schema, registries.__getitem__)
    found = decoder.decode(values, np.zeros(count, np.int32), np.arange(count), now_ms=NOW_MS)
    return found.table.drop_columns([EVENT_MS, PARTITION, OFFSET, "ts"]).to_pylist(), found.rejects


def loaded(form: RecordFormat, values: Sequence[bytes]) -> tuple[list[dict[str, Any]], Rejects]:
    """Decode as a loader does."""
    columns = tuple(LoaderColumn(name, path=path) for name, (_, path) in PATHS.items())
    loader = Loader(name="l", topic="t", database="d", table="t", columns=columns, format=form)
    assert loader_problems(loader) == ()
    table = TableSchema(
        keys_type="DUP_KEYS",
        properties=tuple(
            SchemaColumn(name, "DECIMAL", precision="6", scale="2")
            if kind.startswith("decimal")
            else SchemaColumn(name, TYPES[kind])
            for name, (kind, _) in PATHS.items()
        ),
    )
    decoder = RecordDecoder(target_of(loader, table), record_bytes_max=1 << 20, form=form)
    found = decoder.decode(values)
    return found.rows.to_pylist(), found.rejects


def leaf_at(name: str, *path: str, kind: ColumnType = INT) -> Leaf:
    return Leaf(name, path, kind, False)


COLUMNS = tuple(Column(name, kind, path=path) for name, (kind, path) in PATHS.items())


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3)))
@pytest.mark.parametrize("form", FORMS)
def test_drawn_nested_records_give_the_columns_of_a_recount_in_every_format(form: str, seed: int) -> None:
    source = random.Random(seed)
    events = [drawn(source) for _ in range(1500)]
    values = [written(form, event) for event in events]
    expected = [recount(event) for event in events]
    refused = [place for place, each in enumerate(expected) if each is None]
    assert refused
    for rows, rejects in (decode(FORMS[form], values, *COLUMNS), loaded(FORMS[form], values)):
        assert rejects.index.tolist() == refused
        assert set(rejects.reason) == {"wrong_type"}
        assert rows == [each for each in expected if each is not None]


@pytest.mark.parametrize("form", FORMS)
def test_an_item_or_a_key_that_is_not_there_is_null(form: str) -> None:
    rows, rejects = decode(FORMS[form], [written(form, EMPTY)], *COLUMNS)
    assert not len(rejects)
    assert rows == [dict.fromkeys(PATHS)]


@pytest.mark.parametrize("form", FORMS)
def test_all_items_of_an_array_have_the_type_of_the_column(form: str) -> None:
    """An item that no column reads is too large for the column that reads another one."""
    marks = Column("mark", "int", path="marks[0]")
    values = [written(form, EMPTY | {"marks": [1, 2, TOO_LARGE]}), written(form, EMPTY | {"marks": [1]})]
    rows, rejects = decode(FORMS[form], values, marks)
    assert (rejects.index.tolist(), rejects.reason) == ([0], ["wrong_type"])
    assert "column mark: expected int" in rejects.detail[0]
    assert rows == [{"mark": 1}]


@pytest.mark.parametrize("form", FORMS)
def test_what_nobody_reads_may_be_anything(form: str) -> None:
    values = [written(form, EMPTY | {"marks": [1, TOO_LARGE], "tags": {"green": TOO_LARGE, "red": 3}})]
    rows, rejects = decode(FORMS[form], values, Column("red", "int", path="tags.red"))
    assert not len(rejects)
    assert rows == [{"red": 3}]


WRONG = {
    "marks.red": "an object at marks",
    "ts[0]": "an array at ts",
    "tags[0]": "an array at tags",
    "legs[0].n.x": "an object at legs[0].n",
    "legs[0].n[1]": "an array at legs[0].n",
    "places.home[2]": "an array at places.home",
}


@pytest.mark.parametrize("path", WRONG)
@pytest.mark.parametrize("form", [name for name in FORMS if name != "json"])
def test_a_path_into_what_has_no_items_or_names_is_refused_when_it_is_declared(form: str, path: str) -> None:
    wrong = Column("x", "int", path=path)
    with pytest.raises(
        DefinitionError, match=r"columns\[1\].path: the path .* leads into what has no"
    ) as told:
        validate_schema(schema_of(FORMS[form], wrong))
    assert f" at {WRONG[path].partition(' at ')[2]}" in str(told.value)
    loader = Loader(
        name="l",
        topic="t",
        database="d",
        table="t",
        columns=(LoaderColumn("x", path=path),),
        format=FORMS[form],
    )
    assert any("leads into what has no" in problem.message for problem in loader_problems(loader))


@pytest.mark.parametrize("path", ["legs", "legs[0]", "tags", "places.home"])
@pytest.mark.parametrize("form", [name for name in FORMS if name != "json"])
def test_a_path_that_ends_at_what_holds_others_is_refused_when_it_is_declared(form: str, path: str) -> None:
    with pytest.raises(DefinitionError, match="ends at what holds other values"):
        validate_schema(schema_of(FORMS[form], Column("x", "string", path=path)))


def test_a_key_that_a_map_cannot_have_is_refused_when_it_is_declared() -> None:
    file = proto_file()
    made = add_message(file, "M", [("ts", "int64"), ("by_number", "repeated .test.M.E")])
    add_map(made, "E", "int32", "string")
    form = RecordFormat(type="protobuf", schema=descriptor_set(file), message="test.M")
    validate_schema(schema_of(form, Column("x", "string", path="by_number.7")))
    with pytest.raises(DefinitionError, match="no key 'seven'"):
        validate_schema(schema_of(form, Column("x", "string", path="by_number.seven")))


@pytest.mark.parametrize("path", [path for path in WRONG if path != "ts[0]"])  # the time is a column itself
@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_where_the_schema_is_a_registrys_such_records_are_refused(form: str, path: str) -> None:
    """The words are those for JSON."""
    value = EMPTY | {
        "marks": [1],
        "tags": {"red": 1},
        "legs": [{"n": 1, "s": None, "hops": []}],
        "places": {"home": {"city": "Rome"}},
    }
    columns = (Column("x", "int", path=path),)
    declared, record, source = FORMS[form], written(form, value), None
    if form == "avro":
        declared, record = RecordFormat(type="avro", registry="default"), framed(1, record)
        source = KnownSchemas({1: RegisteredSchema(json.dumps(AVRO))})
    elif form == "protobuf":
        declared, record = RecordFormat(type="protobuf", registry="default"), message_framed(1, [0], record)
        source = KnownSchemas({1: RegisteredSchema(descriptor(trip_file()), "PROTOBUF")})
    _, rejects = decode(declared, [record], *columns, source=source)
    assert rejects.reason == ["wrong_type"]
    assert f"column x: expected {WRONG[path]}, found" in rejects.detail[0]


def test_one_value_is_no_array_and_object_at_once() -> None:
    columns = (Column("x", "int", path="a[0]"), Column("y", "int", path="a.b"))
    with pytest.raises(DefinitionError, match="a is an array, and an object for column y"):
        validate_schema(schema_of(RecordFormat(), *columns))
    leaves = (leaf_at("x", "a", "[0]"), leaf_at("y", "a", "b"))
    for each in (leaves, leaves[::-1]):
        with pytest.raises(DefinitionError, match="as another type"):
            JsonPlan(each, None)


def avro(
    schema: Any, records: Sequence[bytes], *leaves: Leaf, reader: Any = None
) -> tuple[Any, dict[int, Any]]:
    """Return the columns of records whose field `v` is of the schema, and the problems."""
    problems: dict[int, Any] = {}
    known = None if reader is None else parse_avro_schema(json.dumps(in_record(reader)))
    made = AvroReader(JsonPlan(leaves, None), parse_avro_schema(json.dumps(in_record(schema))), known)
    rows, _ = made.read(list(records), np.arange(len(records)), problems)
    return [at_path(rows, each.path).to_pylist() for each in leaves], problems


def in_record(schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": schema}]}


INTS = {"type": "array", "items": "int"}
COUNTS = {
    "type": "map",
    "values": [
        "null",
        {
            "type": "record",
            "name": "P",
            "fields": [{"name": "x", "type": ["null", "int"]}, {"name": "y", "type": ["null", "int"]}],
        },
    ],
}


def pair(key: str, value: Any) -> bytes:
    return encode("string", key) + encode(COUNTS["values"], value)


def test_of_a_key_that_comes_twice_the_last_value_counts() -> None:
    x, y = leaf_at("x", "v", "k", "x"), leaf_at("y", "v", "k", "y")
    first, second = pair("k", {"x": 1, "y": None}), pair("k", {"x": None, "y": 2})
    records = [
        zigzag(2) + first + second + b"\0",
        zigzag(2) + first + pair("k", None) + b"\0",
        zigzag(1) + first + zigzag(1) + second + b"\0",
        zigzag(1) + first + b"\0",
    ]
    assert avro(COUNTS, records, x, y) == ([[None, None, None, 1], [2, None, 2, None]], {})


def test_a_block_that_is_not_as_large_as_it_says_breaks_its_record_alone() -> None:
    sound = encode(INTS, [1, 2, 3], block_items=2)
    items = b"".join(zigzag(each) for each in (1, 2))
    records = [sound, zigzag(-2) + zigzag(1) + items + b"\0", zigzag(-2) + zigzag(3) + items + b"\0\0", sound]
    columns, problems = avro(INTS, records, leaf_at("x", "v", "[2]"))
    assert columns == [[3, 3]]
    assert {place: problem.reason for place, problem in problems.items()} == dict.fromkeys(
        (1, 2), "malformed_avro"
    )


@pytest.mark.parametrize("count", [1 << 20, (1 << 62), -(1 << 62), -(1 << 63)])
def test_items_that_a_record_only_claims_break_it_alone(count: int) -> None:
    size = zigzag(1) if count < 0 else b""
    records = [zigzag(count) + size + b"\2", encode(INTS, [7])]
    columns, problems = avro(INTS, records, leaf_at("x", "v", "[0]"))
    assert (columns, list(problems)) == ([[7]], [0])
    assert problems[0].reason == "malformed_avro"


def test_of_a_union_each_record_takes_its_branch() -> None:
    union = ["null", INTS, {"type": "map", "values": "int"}]
    records = [zigzag(0), zigzag(1) + encode(INTS, [4, 5]), zigzag(2) + encode(union[2], {"k": 6})]
    columns, problems = avro(union, records, leaf_at("x", "v", "[1]"))
    assert columns == [[None, 5]]
    assert problems[2].detail == "column x: expected an array at v, found map"
    columns, problems = avro(union, records, leaf_at("x", "v", "k"))
    assert columns == [[None, 6]]
    assert problems[1].detail == "column x: expected an object at v, found array"


def test_aliases_and_defaults_of_a_readers_schema_hold_inside_of_items_and_maps() -> None:
    def named(field: str, **more: Any) -> dict[str, Any]:
        return {"type": "record", "name": "I", "fields": [{"name": field, "type": "int"} | more]}

    new = named("n", aliases=["old"])
    new["fields"].append({"name": "later", "type": "int", "default": 9})
    for wrap, value, step in (
        (lambda inner: {"type": "array", "items": inner}, [{"old": 1}, {"old": 2}], "[1]"),
        (lambda inner: {"type": "map", "values": inner}, {"a": {"old": 1}, "b": {"old": 2}}, "b"),
    ):
        record = encode(wrap(named("old")), value)
        leaves = leaf_at("n", "v", step, "n"), leaf_at("later", "v", step, "later")
        assert avro(wrap(named("old")), [record], *leaves, reader=wrap(new)) == ([[2], [9]], {})


def test_broken_bytes_in_an_item_that_nobody_reads_are_refused() -> None:
    texts = {"type": "array", "items": "string"}
    records = [encode(texts, ["a", "bcd"]).replace(b"bcd", b"b\xffd"), encode(texts, ["a"])]
    columns, problems = avro(texts, records, leaf_at("x", "v", "[0]", kind=STRING))
    assert (columns, problems[0].reason) == ([["a"]], "invalid_utf8")


def protobuf(file: Any, records: Sequence[bytes], *leaves: Leaf) -> tuple[Any, dict[int, Any]]:
    problems: dict[int, Any] = {}
    made = ProtobufReader(JsonPlan(leaves, None), message_of_set(descriptor_set(file), "test.M"))
    rows, _ = made.read(list(records), np.arange(len(records)), problems)
    return [at_path(rows, each.path).to_pylist() for each in leaves], problems


def test_keys_of_every_type_are_named_as_json_writes_them() -> None:
    file = proto_file()
    kinds = {"by_text": "string", "by_number": "sint64", "by_flag": "bool", "by_fixed": "fixed32"}
    made = add_message(file, "M", [(name, f"repeated .test.M.{name.title()}") for name in kinds])
    for name, kind in kinds.items():
        add_map(made, name.title(), kind, "int32")
    kind = message_class("test.M", file)
    value = kind(
        by_text={"": 1, "a": 2, "ab": 3},
        by_number={-5: 4, 0: 5, 1 << 40: 6},
        by_flag={True: 7, False: 8},
        by_fixed={9: 9},
    ).SerializeToString()
    paths = [
        ("by_text", "ab"),
        ("by_text", "b"),
        ("by_number", "-5"),
        ("by_number", "0"),
        ("by_number", str(1 << 40)),
        ("by_number", "05"),
        ("by_flag", "true"),
        ("by_flag", "false"),
        ("by_fixed", "9"),
        ("by_fixed", "8"),
    ]
    columns, problems = protobuf(
        file, [value, b""][:1], *(leaf_at(str(at), *path) for at, path in enumerate(paths))
    )
    assert problems == {}
    assert columns == [[3], [None], [4], [5], [6], [None], [7], [8], [9], [None]]


def test_entries_may_stand_in_any_order_lack_parts_and_come_twice() -> None:
    file = proto_file()
    made = add_message(file, "M", [("m", "repeated .test.M.E")])
    add_map(made, "E", "string", ".test.V")
    add_message(file, "V", [("x", "int32"), ("y", "int32")])
    leaves = leaf_at("x", "m", "k", "x"), leaf_at("y", "m", "k", "y")

    def entry(*parts: bytes) -> bytes:
        octets = b"".join(parts)
        return b"\x0a" + bytes([len(octets)]) + octets

    key, x, y = b"\x0a\x01k", b"\x12\x02\x08\x01", b"\x12\x02\x10\x02"
    records = [entry(x, key), entry(key, x) + entry(key, y), entry(key), entry(x), entry(key, x) + entry(key)]
    kind: Any = message_class("test.M", file)
    for record in records:
        kind.FromString(record)  # the makers' library takes all of them
    assert protobuf(file, records, *leaves) == (
        [[1, None, None, None, None], [None, 2, None, None, None]],
        {},
    )


def test_items_may_be_packed_in_parts_and_stand_alone_in_one_record() -> None:
    file = proto_file()
    add_message(file, "M", [("n", "repeated int32"), ("w", "repeated double"), ("s", "repeated sint32")])
    kind: Any = message_class("test.M", file)
    records = [
        b"\x0a\x02\x01\x02" + b"\x08\x03" + b"\x0a\x03\x84\x01\x05",
        kind(w=[0.5, 1.5, 2.5], s=[-1, 1, -70]).SerializeToString(),
        b"\x0a\x00" + b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ]
    leaves = [leaf_at(f"n{at}", "n", f"[{at}]") for at in range(5)]
    leaves += [leaf_at("w", "w", "[2]", kind=DOUBLE), leaf_at("s", "s", "[2]")]
    columns, problems = protobuf(file, records, *leaves)
    judged = [kind.FromString(record) for record in records]
    expected = [[each.n[at] if len(each.n) > at else None for each in judged] for at in range(5)]
    assert problems == {}
    assert columns == [*expected, [None, 2.5, None], [None, -70, None]]


@pytest.mark.parametrize("record", [b"\x0a\x01\x80", b"\x0a\x02\x01\xff", b"\x12\x07" + b"1" * 7])
def test_packed_items_that_are_cut_break_their_record_alone(record: bytes) -> None:
    file = proto_file()
    add_message(file, "M", [("n", "repeated int32"), ("w", "repeated double")])
    leaves = leaf_at("n", "n", "[0]"), leaf_at("w", "w", "[0]", kind=DOUBLE)
    columns, problems = protobuf(file, [b"\x0a\x01\x07", record], *leaves)
    assert columns == [[7], [None]]
    assert problems[1].reason == "malformed_protobuf"


def test_a_member_of_a_oneof_that_another_took_the_place_of_begins_anew() -> None:
    file = proto_file()
    made = add_message(file, "M", [("a", ".test.A"), ("b", "int32")])
    add_message(file, "A", [("x", "int32"), ("n", "repeated int32")])
    made.ClearField("oneof_decl")
    made.oneof_decl.add(name="either")
    for each in made.field:
        each.oneof_index = 0
        each.ClearField("proto3_optional")
    first, other, second = b"\x0a\x04\x08\x01\x10\x05", b"\x10\x03", b"\x0a\x02\x10\x06"
    kind: Any = message_class("test.M", file)
    records = [first + other + second, first + second]
    leaves = leaf_at("x", "a", "x"), leaf_at("n0", "a", "n", "[0]"), leaf_at("n1", "a", "n", "[1]")
    columns, problems = protobuf(file, records, *leaves)
    judged = [kind.FromString(record) for record in records]
    assert [list(each.a.n) for each in judged] == [[6], [5, 6]]
    assert not judged[0].a.HasField("x")
    assert (columns, problems) == ([[None, 1], [6, 5], [None, 6]], {})


TAGS = 6  # the number of the field
STRICTER = ("is a group, or of no type that there is", "a number of more than 64 bits")


def judgement(kind: Any, record: bytes) -> tuple[Any, str]:
    """Return what the makers' library reads; None, and why, where it refuses the record."""
    try:
        return kind.FromString(record), ""
    except DecodeError as error:
        return None, str(error)


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(3)))
def test_records_with_changed_bytes_are_read_as_the_makers_library_reads_them(seed: int) -> None:
    """That library has a schema of the fields that are read, so it looks at no others either. Texts are the
    exception: it refuses broken ones in keys that nobody reads. It also leaves out an entry of a map with a
    field that it does not know, where this reader passes over that field."""
    source = random.Random(seed)
    file = trip_file()
    for name in ("prices", "times", "places"):
        fields = file.message_type[0].field
        fields.remove(next(each for each in fields if each.name == name))
    kind: Any = message_class("test.Trip", file)
    records = []
    for _ in range(1500):
        record = bytearray(written("protobuf", drawn(source) | {"prices": [], "times": [], "places": {}}))
        for _ in range(source.choice((0, 1, 2))):
            record[source.randrange(len(record))] = source.randrange(256)
        records.append(bytes(record))
    leaves = (
        leaf_at("mark", "marks", "[2]", kind=BIGINT),
        leaf_at("red", "tags", "red", kind=BIGINT),
        leaf_at("n", "legs", "[1]", "n", kind=BIGINT),
        leaf_at("s", "legs", "[0]", "s", kind=STRING),
        leaf_at("hop", "legs", "[1]", "hops", "[0]", kind=STRING),
    )
    problems: dict[int, Any] = {}
    reader = ProtobufReader(JsonPlan(leaves, None), message_of_set(descriptor_set(file), "test.Trip"))
    rows, places = reader.read(records, np.arange(len(records)), problems)
    columns = [at_path(rows, each.path).to_pylist() for each in leaves]
    refused = 0
    for place, record in enumerate(records):
        judged, why = judgement(kind, record)
        if judged is None:
            refused += 1
            assert place in problems or "UTF-8" in why, record
            continue
        if place in problems:
            assert problems[place].detail.endswith(STRICTER), record
            continue
        at = int(np.searchsorted(places, place))
        first, second = (judged.legs[at] if len(judged.legs) > at else None for at in (0, 1))
        expected = [
            judged.marks[2] if len(judged.marks) > 2 else None,
            judged.tags.get("red") if "red" in judged.tags else None,
            second.n if second is not None and second.HasField("n") else None,
            first.s if first is not None and first.HasField("s") else None,
            second.hops[0] if second is not None and second.hops else None,
        ]
        found = [column[at] for column in columns]
        if any(left.field_number == TAGS for left in UnknownFieldSet(judged)):
            found[1] = expected[1] = None
        assert found == expected, record
    assert refused > 20
    assert len(places) > 500
