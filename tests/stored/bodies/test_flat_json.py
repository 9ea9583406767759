"""JSON lines that are cut in blocks, against the reader of single records: values, refused rows, reasons."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from rtolap.model.stored.schema import StoredSchema, initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.json import reader
from rtolap.stored.bodies.json.flat import flat_rows
from rtolap.stored.bodies.json.members import Kind
from rtolap.stored.bodies.json.quotes import lines_of
from rtolap.stored.bodies.options import JsonOptions, LoadOptions
from rtolap.stored.bodies.settings import BodySettings

from tests.support.seeds import so_many

SEEDS = so_many(6, 10)
_KINDS = ("int", "bigint", "double", "decimal(12,3)", "date", "timestamp", "boolean", "string", "string")


def schema_of(rng: random.Random) -> StoredSchema:
    """Draw a table whose columns have any names, also such as begin alike."""
    names = rng.sample(("k", "ke", "key", "kez", "e", "Ärger", "a b", "x.y", "0", "long_name_of_a_column"), 5)
    columns = [
        StoredColumn(
            name,
            kind := rng.choice(_KINDS),
            nullable=rng.random() < 0.8,
            default="1" if kind in ("int", "string") and rng.random() < 0.4 else None,
        )
        for name in names
    ]
    return initial_schema(StoredTable(database="shop", name="orders", columns=tuple(columns)))


def number(rng: random.Random) -> str:
    digits = "".join(rng.choices("0001234567899", k=rng.randrange(1, 22)))
    sign = rng.choice(("", "", "-"))
    match rng.randrange(6):
        case 0:
            return sign + digits
        case 1:
            return sign + str(int(digits))
        case 2:
            return f"{sign}{int(digits[:9])}.{digits[9:] or rng.choice(('0', '00', '50', '5'))}"
        case 3:
            return f"{sign}0.{rng.choice(('', '0', '000', '00000', '000000'))}{digits[:6]}"
        case 4:
            power = rng.choice(("e", "E", ".5e")) + rng.choice(("", "+", "-")) + str(rng.randrange(400))
            return f"{sign}{int(digits[:3])}{power}"
        case _:
            return rng.choice(
                ("0", "-0", "0.0", "-0.0", "12.50", "7.10000", "1.000", ".5", "5.", "+1", "--1", "1.2.3")
            )


def text(rng: random.Random) -> str:
    drawn = rng.choice(
        (
            lambda: "".join(rng.choices(string.printable[:95], k=rng.randrange(12))),
            lambda: "".join(rng.choices("aé日\U0001f600\x7f", k=rng.randrange(5))),
            lambda: rng.choice(
                ("null", "true", ",", ":", '":', "},{", "{", "]", " ", "2024-05-21 22:57:31", "12", "1.50")
            ),
        )
    )()
    return json.dumps(drawn, ensure_ascii=rng.random() < 0.1)


def value(rng: random.Random) -> str:
    return rng.choice(
        (
            text,
            number,
            lambda rng: str(rng.randrange(-1000, 1000)),
            lambda rng: rng.choice(("true", "false", "null", "null")),
        )
    )(rng)


def odd_value(rng: random.Random) -> str:
    inner = [value(rng) for _ in range(rng.randrange(3))]
    return rng.choice(
        (
            f"[{', '.join(inner)}]",
            "{" + ", ".join(f'"{name}": {each}' for name, each in zip("ab", inner, strict=False)) + "}",
            rng.choice(("True", "nul", "nulll", "NaN", "Infinity", "tru", "'a'", "", '"', '"a" "b"', "1 2")),
        )
    )


def body_of(rng: random.Random, names: list[str]) -> bytes:
    """Draw lines of few shapes, some of them with something that only a few lines have, or that is wrong."""
    others = ["more", "Key", names[0][:1]]
    shapes = [
        rng.sample((*names, *others), rng.randrange(1, len(names) + 1))
        for _ in range(rng.choice((1, 1, 2, 6)))
    ]
    spaced = rng.choice((("", ""), (" ", " "), (" ", ""), ("", " ")))
    fixed: dict[str, Any] = {}
    odd = rng.choice((0.0, 0.0, 0.02, 0.2))
    lines = []
    for _ in range(rng.choice((1, 9, 40, 200))):
        shape = list(rng.choice(shapes))
        if rng.random() < odd:
            shape.insert(rng.randrange(len(shape) + 1), rng.choice((*names, *others)))
        members = []
        for name in shape:
            drawn = fixed.setdefault(
                name, rng.choice((value, text, number, lambda rng: str(rng.randrange(99))))
            )
            written = odd_value(rng) if rng.random() < odd else drawn(rng)
            gap = rng.choice(("", " ", "  ", "\t")) if rng.random() < odd else spaced[0]
            members.append(f"{json.dumps(name, ensure_ascii=rng.random() < 0.01)}:{gap}{written}")
        line = ("{" + f",{spaced[1]}".join(members) + "}").encode()
        if rng.random() < odd:
            at = rng.randrange(len(line))
            line = rng.choice(
                (
                    line[:at]
                    + rng.choice((b'"', b"\\", b"\x01", b"\xff", b"\r", b"{", b",", b" "))
                    + line[at:],
                    line[:at] + line[at + 1 :],
                    line + rng.choice((b" ", b"\r", b",", b"}", b"{}")),
                    b" " + line,
                    b"",
                    b" \t",
                    b"\r",
                )
            )
        lines.append(line)
    return rng.choice((b"\n", b"\n", b"\r\n")).join(lines) + rng.choice((b"", b"\n"))


def cut(rng: random.Random, body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        size = rng.choice((3, 100, 5000))
        yield body[at : at + size]
        at += size


def outcome(body: bytes, options: LoadOptions, schema: StoredSchema, seed: int) -> list[Any]:
    rng = random.Random(seed)
    settings = BodySettings(
        chunk_bytes=rng.choice((60, 1000, 1 << 20)), rejected_rows_max=rng.choice((3, 1000))
    )
    return [
        (
            batch.rows.to_pylist(),
            batch.total,
            None if batch.rejected is None else (batch.rejected.count, batch.rejected.rows.to_pylist()),
        )
        for batch in decode_body(cut(rng, body), options, schema, settings)
    ]


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_flat_lines_are_read_as_single_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    for case in range(4):
        schema = schema_of(rng)
        body = body_of(rng, [*schema.names])
        options = LoadOptions(
            format="json",
            strict_mode=rng.random() < 0.5,
            json=JsonOptions(num_as_string=rng.random() < 0.3),
        )
        at_once = outcome(body, options, schema, seed + case)
        with monkeypatch.context() as without:
            without.setattr(reader, "flat_rows", lambda *_, **__: [])
            one_by_one = outcome(body, options, schema, seed + case)
        assert repr(at_once) == repr(one_by_one), body


def test_lines_of_usual_shape_are_flat() -> None:
    """The comparison above would say nothing if all lines went the other way."""
    rows = [
        {"id": at, "name": f"n{at}", "price": at / 4, "ok": at % 2 == 0, "note": None if at % 3 else "x"}
        for at in range(100)
    ]
    for separators in ((",", ":"), (", ", ": ")):
        body = "\n".join(json.dumps(row, separators=separators) for row in rows).encode()
        found = flat_rows(
            body, lines_of(body), dict.fromkeys(("id", "note", "absent"), "text"), as_written=False
        )
        assert [len(each.rows) for each in found] == [100]
        assert found[0].columns["id"].to_pylist() == [str(at) for at in range(100)]
        assert found[0].columns["note"].to_pylist() == [None if at % 3 else "x" for at in range(100)]


def test_whole_numbers_and_truth_values_come_without_text() -> None:
    """Where a block has others too, the column is text."""
    numbers = [0, -1, 7, 12345678, -123456789, 10**15, -(10**16) + 1]
    rows = [{"n": numbers[at % 7], "b": at % 2 == 0, "m": at if at else None} for at in range(50)]
    body = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows).encode()
    kinds: dict[str, Kind] = {"n": "integer", "b": "boolean", "m": "integer"}
    (found,) = flat_rows(body, lines_of(body), kinds, as_written=False)
    assert found.columns["n"].equals(pa.array([row["n"] for row in rows]))
    assert found.columns["b"].equals(pa.array([row["b"] for row in rows]))
    numbered = body.replace(b"null", b"0")
    (typed,) = flat_rows(numbered, lines_of(numbered), kinds, as_written=False)
    assert [str(values.type) for values in typed.columns.values()] == ["int64", "bool", "int64"]
    assert found.columns["m"].to_pylist() == [str(at) if at else None for at in range(50)]


def test_a_line_that_is_not_as_the_others_is_not_read_as_they_are() -> None:
    """One line of a block at a time is changed in one byte: it is flat only if its JSON is still right."""
    rng = random.Random(5)
    rows = [{"id": 10**12 + at, "name": f"n,{at}", "ok": at % 3 == 0, "x": at / 8} for at in range(12)]
    lines = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    for _ in range(1500):
        at, byte = rng.randrange(len(lines[7])), rng.choice(b'",:{}[]0129-.etn \\')
        changed = lines[7][:at] + bytes([byte]) * rng.randrange(3) + lines[7][at + 1 :]
        body = b"\n".join([*lines[:7], changed, *lines[8:]])
        kinds: dict[str, Kind] = {"id": "integer", "name": "text", "ok": "boolean", "x": "text"}
        for found in flat_rows(body, lines_of(body), kinds, as_written=True):
            places = found.rows.tolist()
            assert len(places) > 1, changed
            if 7 in places:
                read = {name: values[places.index(7)].as_py() for name, values in found.columns.items()}
                written = json.loads(changed, parse_float=str, parse_int=str)
                told = {"true": True, "false": False} if found.columns["ok"].type != pa.bool_() else {}
                shown = {name: told.get(value, value) for name, value in read.items()}
                assert {name: str(value) for name, value in shown.items()} == {
                    name: str(value) for name, value in written.items() if name in kinds
                }, changed


def test_lines_of_several_shapes_are_flat() -> None:
    lines = [b'{"a":1}', b'{"b":"x"}', b'{"a":null,"b":"y"}'] * 20 + [b'{"a":[1]}']
    body = b"\n".join(lines)
    found = flat_rows(body, lines_of(body), dict.fromkeys("ab", "text"), as_written=False)
    assert sorted(row for each in found for row in each.rows.tolist()) == list(range(60))
