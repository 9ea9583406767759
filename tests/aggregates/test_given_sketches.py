"""Sketches that events bring along: read as the library reads them, or refused with a named reason."""

from __future__ import annotations

import base64
import contextlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import datasketches
import numpy as np
import pytest
from google.protobuf.message import Message
from rtolap.aggregates.accumulator import GivenForm, SketchFamily
from rtolap.aggregates.approx_percentile import KLL_K_DEFAULT
from rtolap.aggregates.approx_top_k import FrequentValues
from rtolap.base.errors import DefinitionError
from rtolap.columnar.given.fault import GivenSketchFault
from rtolap.columnar.given.sketches import _READERS
from rtolap.columnar.schema import EVENT_MS
from rtolap.cubes.format.aggregate import aggregate_events, merge_tables, to_plain
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.formats.record_format import RecordFormat
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema
from rtolap.query.statement_service import QueryService

from tests.support.aggregates.given_sketches import FAMILIES, KINDS, drawn_sketch, said
from tests.support.aggregates.measured import GIVEN, LG_K, SCHEMA, Measured, measured_events
from tests.support.formats.avro import encode
from tests.support.formats.protobuf import add_message, descriptor_set, message_class, proto_file
from tests.support.query.query_world import QueryWorld, given_union
from tests.support.seeds import so_many

SEED = 8100
SIZES: dict[SketchFamily, int] = {"hll": 6, "kll": 20, "frequent_items": 5}
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
@pytest.mark.parametrize("seed", range(so_many(3)))
def test_every_form_that_the_library_writes_is_read_as_the_library_reads_it(
    family: SketchFamily, seed: int
) -> None:
    rng, size = random.Random(SEED + seed), SIZES[family]
    for _ in range(120):
        image = drawn_sketch(rng, family, size)
        found = _READERS[family](image, size)
        if found is None:
            assert said(family, image, size) is None
            continue
        assert said(family, found, size)[:3] == said(family, image, size)[:3]
        if family != "hll" and image[4 if family == "kll" else 3] == size:
            assert found == image


@every_family
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_changed_bytes_are_refused_by_name_or_read_as_the_library_reads_them(
    family: SketchFamily, seed: int
) -> None:
    rng, size = random.Random(SEED + seed), SIZES[family]
    reasons = {"malformed_sketch": 0, "unfit_sketch": 0, "read": 0}
    for _ in range(600):
        image = changed(rng, drawn_sketch(rng, family, size))
        try:
            found = _READERS[family](image, size)
        except GivenSketchFault as fault:
            reasons[fault.reason] += 1
            continue
        reasons["read"] += 1
        expected = said(family, image, size)  # bytes that pass are sound to the library too
        assert (found is None) == (expected is None)
        assert found is None or said(family, found, size)[:3] == expected[:3]
    assert all(reasons.values()), reasons
    assert reasons["malformed_sketch"] > 300, reasons


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compact", [True, False])
def test_a_changed_register_is_noticed_by_the_sums_beside_it(kind: Any, compact: bool) -> None:
    sketch = datasketches.hll_sketch(8, kind)
    for number in range(2000):
        sketch.update(number)
    image = bytes(sketch.serialize_compact() if compact else sketch.serialize_updatable())
    assert _READERS["hll"](image, 8) is not None
    for at in range(40, 40 + 128):
        for bit in range(8):
            other = bytearray(image)
            other[at] ^= 1 << bit
            with pytest.raises(GivenSketchFault):
                _READERS["hll"](bytes(other), 8)


def changed(rng: random.Random, image: bytes) -> bytes:
    """Return other bytes: some flipped, cut, put in or moved; the first ones more often than others."""
    octets = bytearray(image)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(octets)) if octets else 0
        if rng.random() < 0.5:
            at = rng.randrange(min(40, len(octets))) if octets else 0
        match rng.randrange(6):
            case 0 if octets:
                octets[at] ^= 1 << rng.randrange(8)
            case 1 if octets:
                octets[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 2:
                del octets[at:]
            case 3:
                octets[at:at] = rng.randbytes(rng.choice([1, 4, 8]))
            case 4:
                del octets[at : at + rng.choice([1, 4, 8])]
            case _ if len(octets) >= 8:
                octets[at : at + 4] = rng.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0"])
    return bytes(octets)


def hll(values: int, lg_k: int = 12, first: int = 0) -> bytes:
    sketch = datasketches.hll_sketch(lg_k)
    for number in range(first, first + values):
        sketch.update(f"v{number}")
    return bytes(sketch.serialize_compact())


def kll(values: int, k: int = 200) -> bytes:
    sketch = datasketches.kll_doubles_sketch(k)
    sketch.update(np.arange(values, dtype=float))
    return bytes(sketch.serialize())


def theta(values: int) -> bytes:
    sketch = datasketches.update_theta_sketch()
    for number in range(values):
        sketch.update(number)
    return bytes(sketch.compact().serialize())


def floats(values: int) -> bytes:
    sketch = datasketches.kll_floats_sketch(200)
    sketch.update(np.arange(values, dtype=np.float32))
    return bytes(sketch.serialize())


def long_text() -> bytes:
    sketch = datasketches.frequent_strings_sketch(10)
    sketch.update("x" * 300)
    return bytes(sketch.serialize())


@pytest.mark.parametrize(
    ("family", "size", "image", "reason", "words"),
    [
        ("hll", 12, b"", "malformed_sketch", "expected 8 bytes or more, found 0"),
        ("hll", 12, b"no sketch at all", "malformed_sketch", r"family 7 \(HLL\), found 32"),
        ("hll", 12, theta(100), "unfit_sketch", "found COMPACT"),
        ("hll", 12, kll(100), "unfit_sketch", "family HLL, found KLL"),
        ("hll", 12, hll(10, 11), "unfit_sketch", "lg_k 12 or more, found 11"),
        ("hll", 12, hll(5000, 11), "unfit_sketch", "lg_k 12 or more, found 11"),
        ("hll", 12, hll(5000)[:-1], "malformed_sketch", "bytes, found"),
        ("kll", 200, kll(1000, 100), "unfit_sketch", "k 200 or more, found 100"),
        ("kll", 200, hll(10), "unfit_sketch", "family KLL, found HLL"),
        ("kll", 200, floats(1), "malformed_sketch", "one of floats"),
        ("kll", 200, floats(1000), "malformed_sketch", "one of floats"),
        ("frequent_items", 9, kll(3), "unfit_sketch", "family FREQUENCY"),
        ("frequent_items", 9, long_text(), "unfit_sketch", "at most 256 characters, found 300"),
        (
            "frequent_items",
            9,
            bytes(datasketches.frequent_strings_sketch(8).serialize()),
            "unfit_sketch",
            "2.9 places or more, found 2.8",
        ),
    ],
)
def test_what_is_wrong_is_named(
    family: SketchFamily, size: int, image: bytes, reason: str, words: str
) -> None:
    with pytest.raises(GivenSketchFault, match=words) as refused:
        _READERS[family](image, size)
    assert refused.value.reason == reason


def test_larger_sketches_become_those_of_the_measure() -> None:
    of_14 = _READERS["hll"](hll(60_000, 14), 12)
    assert of_14 is not None
    assert of_14[3] == 12
    assert said("hll", of_14, 12) == said("hll", hll(60_000, 12), 12)
    of_400 = _READERS["kll"](kll(5000, 400), 200)
    assert of_400 is not None
    sketch = datasketches.kll_doubles_sketch.deserialize(of_400)
    assert (sketch.k, sketch.n) == (200, 5000)


COLUMNS = (
    Column("ts", "bigint"),
    Column("shop", "string"),
    Column("sold", "bigint"),
    Column("who", "binary"),
    Column("paid", "binary", path="stats.paid"),
)
MEASURES = (
    Measure("count"),
    Measure("sum", "sold"),
    Measure("approx_distinct", "who", 11, input="sketch"),
    Measure("approx_percentile", "paid", input="sketch"),
    Measure("approx_distinct", "who", 11, input="sketch", where="shop = 'a'", name="who_a"),
)


def schema_of(form: RecordFormat = RecordFormat(), columns: tuple[Column, ...] = COLUMNS) -> Schema:
    table = Table(
        name="t", topic="t", columns=columns, time=TimeColumn("ts", "epoch_ms"), format=form, future_max_ms=1
    )
    cube = Cube(
        name="c", table="t", dimensions=("shop",), measures=MEASURES, segment=SegmentPolicy(86_400_000)
    )
    return Schema(table, cube)


AVRO_STATS = {"type": "record", "name": "Stats", "fields": [{"name": "paid", "type": ["null", "bytes"]}]}


def avro_schema(kind: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "ts", "type": "long"},
            {"name": "shop", "type": "string"},
            {"name": "sold", "type": "long"},
            {"name": "who", "type": ["null", kind]},
            {"name": "stats", "type": AVRO_STATS},
        ],
    }


def _avro(event: dict[str, Any]) -> bytes:
    return encode(avro_schema("bytes"), {**event, "stats": {"paid": event["paid"]}})


def _avro_text(event: dict[str, Any]) -> bytes:
    who = None if event["who"] is None else base64.b64encode(event["who"]).decode()
    return encode(avro_schema("string"), {**event, "who": who, "stats": {"paid": event["paid"]}})


def _text(event: dict[str, Any]) -> dict[str, Any]:
    return {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in event.items()}


def _json(event: dict[str, Any]) -> bytes:
    values = _text(event)
    return json.dumps({**values, "stats": {"paid": values.pop("paid")}}).encode()


def _csv(event: dict[str, Any]) -> bytes:
    return ",".join("" if each is None else str(each) for each in _text(event).values()).encode()


_FILE = proto_file()
add_message(_FILE, "Stats", [("paid", "bytes")])
add_message(
    _FILE,
    "Event",
    [("ts", "int64"), ("shop", "string"), ("sold", "int64"), ("who", "bytes"), ("stats", ".test.Stats")],
)
_EVENT: type[Message] = message_class("test.Event", _FILE)


def _protobuf(event: dict[str, Any]) -> bytes:
    known = {name: value for name, value in event.items() if value is not None and name != "paid"}
    message: Any = _EVENT(**known)
    if event["paid"] is not None:
        message.stats.paid = event["paid"]
    return bytes(message.SerializeToString())


FLAT = tuple(Column("paid", "binary") if each.name == "paid" else each for each in COLUMNS)
_FORMATS: dict[str, tuple[Schema, Callable[[dict[str, Any]], bytes]]] = {
    "json": (schema_of(), _json),
    "csv": (schema_of(RecordFormat(type="csv"), FLAT), _csv),
    "avro": (schema_of(RecordFormat(type="avro", schema=json.dumps(avro_schema("bytes")))), _avro),
    "avro text": (schema_of(RecordFormat(type="avro", schema=json.dumps(avro_schema("string")))), _avro_text),
    "protobuf": (
        schema_of(RecordFormat(type="protobuf", schema=descriptor_set(_FILE), message="test.Event")),
        _protobuf,
    ),
}


def decoded(schema: Schema, records: list[bytes]) -> Decoded:
    offsets = np.arange(len(records), dtype=np.int64)
    return EventDecoder(schema).decode(records, np.zeros(len(records), np.int32), offsets, now_ms=1 << 40)


@pytest.mark.parametrize("form", _FORMATS)
def test_events_of_every_format_begin_and_merge_sketches_and_bad_ones_are_refused(form: str) -> None:
    schema, write = _FORMATS[form]
    validate_schema(schema)
    good = [
        {"ts": at, "shop": "ab"[at % 2], "sold": at, "who": hll(300, 12, 100 * at), "paid": kll(at + 1)}
        for at in range(6)
    ]
    nothing: list[dict[str, Any]] = [{"ts": 6, "shop": "a", "sold": 6, "who": None, "paid": None}]
    empty = [{"ts": 7, "shop": "b", "sold": 7, "who": hll(0), "paid": kll(0)}]
    bad = [
        good[0] | {"who": hll(300)[:-2]},
        good[0] | {"who": theta(10)},
        good[0] | {"paid": kll(10, 100)},
        good[0] | {"who": hll(10, 10)},
    ]
    records = [write(event) for event in (*good, *bad, *nothing, *empty)]
    found = decoded(schema, records)
    assert found.rejects.index.tolist() == [6, 7, 8, 9]
    assert found.rejects.reason == ["malformed_sketch", "unfit_sketch", "unfit_sketch", "unfit_sketch"]
    assert all(text.startswith(("column who: ", "column paid: ")) for text in found.rejects.detail)
    (local,) = aggregate_events(schema, found.table).values()
    partials = ("__rows", "sold__sum", "who__hll", "paid__kll", "who_a__hll")
    rows = to_plain(schema, merge_tables(schema, [local], ("shop",), partials)).to_pylist()
    by_shop = {row["shop"]: row for row in rows}
    for shop, others in (("a", nothing), ("b", empty)):
        mine = [event for event in good if event["shop"] == shop]
        row = by_shop[shop]
        assert row["__rows"] == len(mine) + 1
        assert row["sold__sum"] == sum(event["sold"] for event in (*mine, *others))
        union = given_union([event["who"] for event in mine], GivenForm("hll", 11))
        assert union is not None
        assert said("hll", row["who__hll"], 11) == said("hll", union, 11)
        assert row["who_a__hll"] == (row["who__hll"] if shop == "a" else None)
        quantiles = datasketches.kll_doubles_sketch.deserialize(row["paid__kll"])
        assert quantiles.n == sum(event["ts"] + 1 for event in mine)


@pytest.mark.parametrize(
    "text", ['"!!!!"', '"AgEP"', '"aé=="', '"QUI"', '"QUJD\\nQUJD"', "5", '{"a": 1}', "true", '""']
)
def test_what_is_no_base64_or_no_sketch_is_refused_and_others_stay(text: str) -> None:
    record = f'{{"ts": 1, "shop": "a", "sold": 1, "who": {text}}}'.encode()
    found = decoded(schema_of(), [record, b'{"ts": 1, "shop": "a", "sold": 1}'])
    assert found.rejects.index.tolist() == [0]
    assert found.rejects.reason[0] in ("wrong_type", "nested_value", "malformed_sketch")
    assert found.table.num_rows == 1


@every_family
def test_drawn_bytes_never_cost_a_batch_more_than_their_own_record(family: SketchFamily) -> None:
    functions = {"hll": "approx_distinct", "kll": "approx_percentile", "frequent_items": "approx_top_k"}
    schema = Schema(
        Table(name="t", topic="t", columns=COLUMNS, time=TimeColumn("ts", "epoch_ms")),
        Cube(
            name="c",
            table="t",
            dimensions=("shop",),
            measures=(Measure("count"), Measure(functions[family], "who", SIZES["hll"], 20, input="sketch")),
        ),
    )
    rng = random.Random(SEED)
    images = [changed(rng, drawn_sketch(rng, family, SIZES[family])) for _ in range(500)]
    good = drawn_sketch(random.Random(3), family, 8 if family != "kll" else 200)
    records = [
        json.dumps({"ts": 1, "shop": "a", "who": base64.b64encode(each).decode()}).encode()
        for image in images
        for each in (image, good)
    ]
    found = decoded(schema, records)
    assert found.table.num_rows + len(found.rejects) == len(records)
    assert set(found.rejects.index.tolist()) <= set(range(0, len(records), 2))
    assert len(found.rejects) > 250
    (local,) = aggregate_events(schema, found.table).values()
    (row,) = to_plain(schema, merge_tables(schema, [local], ("shop",))).to_pylist()
    assert row["__rows"] == found.table.num_rows
    (partial,) = [each for each in schema.partials if each.accumulator.given_form is not None]
    said(family, row[partial.name], partial.accumulator.given_form.size)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"measures": (Measure("approx_distinct", "who"),)}, "or input: sketch; found who binary"),
        ({"measures": (Measure("sum", "who"),)}, "sum does not fit the column"),
        ({"measures": (Measure("sum", "who", input="sketch"),)}, "sum merges no sketches"),
        ({"measures": (Measure("approx_distinct", "sold", input="sketch"),)}, "a column of type binary"),
        (
            {
                "measures": (
                    Measure("approx_distinct", "who", input="sketch"),
                    Measure("approx_percentile", "who", input="sketch"),
                )
            },
            "sketches of one family and size",
        ),
        ({"dimensions": ("who",)}, "bytes are no dimension"),
        (
            {"measures": (Measure("count", where="who IS NULL"),)},
            "column who holds sketches",
        ),
    ],
)
def test_definitions_that_mean_nothing_are_refused(changes: dict[str, Any], words: str) -> None:
    table = Table(name="t", topic="t", columns=COLUMNS, time=TimeColumn("ts", "epoch_ms"))
    cube = Cube(**{"name": "c", "table": "t", "dimensions": ("shop",), **changes})
    with pytest.raises(DefinitionError, match=words):
        validate_schema(Schema(table, cube))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Column("x", "binary", source="key"), "bytes stand in values alone"),
        (Column("x", "binary", expression="CASE WHEN sold > 1 THEN who END"), "bytes are not computed"),
        (Column("x", "boolean", expression="who IS NULL"), "column who holds sketches"),
    ],
)
def test_columns_of_bytes_are_read_from_values(column: Column, words: str) -> None:
    table = Table(name="t", topic="t", columns=(*COLUMNS, column), time=TimeColumn("ts", "epoch_ms"))
    cube = Cube(name="c", table="t", dimensions=("shop",))
    with pytest.raises(DefinitionError, match=words):
        validate_schema(Schema(table, cube))


FORMS = {
    "approx_distinct": ("hll", LG_K, "HLL_SKETCH"),
    "approx_percentile": ("kll", KLL_K_DEFAULT, "KLL_SKETCH"),
    "approx_top_k": ("frequent_items", FrequentValues(KLL_K_DEFAULT).lg_size, "FREQUENT_ITEMS_SKETCH"),
}


@pytest.fixture(scope="module", params=[0, 2, 1], ids=["live", "half built", "built"])
def asked(request: pytest.FixtureRequest) -> Iterator[tuple[QueryService, list[dict[str, Any]]]]:
    rng = random.Random(SEED)
    events = measured_events(rng, 400, limits=False).drop_columns([EVENT_MS])
    with contextlib.closing(QueryWorld(SCHEMA, events, {})) as world:
        for segment in world.segments()[:: request.param] if request.param else ():
            world.build(segment, rng)
        with contextlib.closing(world.service()) as service:
            yield service, world.visible().to_pylist()


@pytest.mark.parametrize("measured", GIVEN, ids=lambda each: each.id)
@pytest.mark.parametrize("key", ["shop", "region", "hour_start"])
def test_sql_over_given_sketches_answers_as_the_library_does(
    measured: Measured, key: str, asked: tuple[QueryService, list[dict[str, Any]]]
) -> None:
    service, events = asked
    family, size, sketch_of = FORMS[measured.function.name]
    sql = (
        f"SELECT {key} k, {measured.function.call(measured.column)} v, {sketch_of}({measured.column}) s, "
        f"{sketch_of}({measured.column}) FILTER (WHERE region > 0) f FROM measured GROUP BY {key}"
    )
    rows = service.execute(sql).table().to_pylist()
    assert {row["k"] for row in rows} == {event[key] for event in events}
    for row in rows:
        mine = [event for event in events if event[key] == row["k"]]
        for shown, those in (
            (row["s"], mine),
            (row["f"], [event for event in mine if (event["region"] or 0) > 0]),
        ):
            union = given_union([event[measured.column] for event in those], GivenForm(family, size))  # type: ignore[arg-type]
            if union is None:
                assert shown is None
                continue
            expected = said(family, union, size)  # type: ignore[arg-type]
            assert said(family, shown, size)[:2] == expected[:2]  # type: ignore[arg-type]
        union = given_union([event[measured.column] for event in mine], GivenForm(family, size))  # type: ignore[arg-type]
        if union is None:
            assert not row["v"]
            continue
        match family:
            case "hll":
                estimate = datasketches.hll_sketch.deserialize(row["s"]).get_estimate()
                assert row["v"] == round(estimate)
            case "kll":
                sketch = datasketches.kll_doubles_sketch.deserialize(union)
                assert abs(sketch.get_rank(row["v"], True) - 0.5) <= 0.2  # the same lengths come often
            case _:
                items = datasketches.frequent_strings_sketch.deserialize(union)
                for each in json.loads(row["v"]):
                    assert items.get_estimate(each["value"]) == each["estimate"]
