"""JSON bodies: where records and values are, what is refused, and why."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import JsonOptions, LoadOptions
from rtolap.stored.bodies.settings import BodySettings

from tests.support.stored.body_tables import Decoded, decoded, plain_schema, unique_schema


def json_(body: bytes, **headers: str) -> Decoded:
    return decoded(body, plain_schema(), format="json", **headers)


def pairs(found: Decoded) -> list[tuple[int, str | None]]:
    assert not found.refused
    return [(row["k"], row["s"]) for row in found.rows]


def test_a_record_a_line_by_default() -> None:
    body = b'{"k": 1, "s": "a"}\n\n {"s": null, "k": "2"} \r\n{"k": 3, "other": [1]}'
    assert pairs(json_(body)) == [(1, "a"), (2, None), (3, None)]


def test_values_that_are_missing_have_their_default_and_nulls_none() -> None:
    found = decoded(b'{"k": 1}\n{"k": 2, "s": null}\n', unique_schema(), format="json")
    assert [row["s"] for row in found.rows] == ["none", None]


def test_an_array_may_be_stripped_of_whatever_white_space_it_has() -> None:
    body = b' [ {"k": 1, "s": "a,]}[\\""},\n{"k": 2, "s": "\\\\"} ]\n'
    for chunk_bytes in (1, 5, 1000):
        settings = BodySettings(chunk_bytes=chunk_bytes)
        found = decoded(body, plain_schema(), settings, format="json", strip_outer_array="true")
        assert pairs(found) == [(1, 'a,]}["'), (2, "\\")]
    assert json_(b" [ ] ", strip_outer_array="true").total == 0


def test_an_array_is_not_held_in_memory() -> None:
    settings = BodySettings(chunk_bytes=1000, record_bytes_max=2000)

    def chunks() -> Iterator[bytes]:
        yield b'[{"k": 0, "s": "a"}'
        for number in range(1, 2000):
            yield b',{"k": %d, "s": "b"}' % number
        yield b"]"

    options = LoadOptions(format="json", json=JsonOptions(by_line=False, strip_outer_array=True))
    sizes = [batch.rows.num_rows for batch in decode_body(chunks(), options, plain_schema(), settings)]
    assert sum(sizes) == 2000
    assert max(sizes) < 100


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'[{"k": 1}', "does not end"),
        (b'{"k": 1}', "no JSON array"),
        (b'[{"k": 1}] [', "more than one JSON array"),
    ],
)
def test_a_body_that_is_no_array_fails(body: bytes, problem: str) -> None:
    with pytest.raises(Corrupted, match=problem):
        json_(body, strip_outer_array="true")


def test_arrays_by_line_and_one_document_in_all() -> None:
    body = b'[{"k": 1}, {"k": 2}]\n[{"k": 3}]\n'
    found = json_(body, strip_outer_array="true", read_json_by_line="true")
    assert pairs(found) == [(1, None), (2, None), (3, None)]
    assert pairs(json_(b'{\n"k": 1,\n"s": "x"\n}\n', read_json_by_line="false")) == [(1, "x")]


def test_records_may_lie_below_a_root() -> None:
    body = b'{"head": 1, "data": {"rows": [{"k": 1}, {"k": 2}]}}'
    found = json_(body, json_root="$.data.rows", strip_outer_array="true")
    assert pairs(found) == [(1, None), (2, None)]
    found = json_(b'{"r": {"k": 1}}\n{"q": {"k": 2}}\n', json_root="$.r")
    assert found.rows == [{"k": 1, "s": None}]
    assert found.refused == [(2, '{"q": {"k": 2}}', "the JSON root is not there")]


def test_paths_say_where_columns_are() -> None:
    body = b'{"a": {"b": [5, 6]}, "c.d": "x", "e/~": 1}\n'
    found = json_(body, jsonpaths='["$.a.b[1]", "$.\\"c.d\\""]', columns="k, s")
    assert pairs(found) == [(6, "x")]
    assert pairs(json_(body, jsonpaths='["$[\'e/~\']", "$.a"]')) == [(1, '{"b":[5,6]}')]


@pytest.mark.parametrize("paths", ['["$.a"]', '["a", "b"]', '["$.a[*]", "$.b"]', '["$.a.", "$.b"]'])
def test_paths_that_are_none_or_do_not_fit_the_columns_are_refused(paths: str) -> None:
    with pytest.raises(DefinitionError, match="header jsonpaths"):
        json_(b"{}", jsonpaths=paths)


def test_fractions_are_exact_whatever_a_double_holds() -> None:
    schema = unique_schema()
    body = b'{"k": 1, "price": 1234567.89}\n{"k": 2, "price": 0.28999999999999999}\n{"k": 3, "price": 1e2}\n'
    found = decoded(body, schema, format="json", strict_mode="true")
    assert [row["price"] for row in found.rows] == [Decimal("1234567.89"), Decimal("100.00")]
    assert [number for number, _, _ in found.refused] == [2]


def test_numbers_may_be_kept_as_they_are_written() -> None:
    body = b'{"k": 1, "s": 12.50}\n{"k": 2, "s": 1e2}\n{"k": 3, "s": 7}\n'
    assert pairs(json_(body, num_as_string="true")) == [(1, "12.50"), (2, "1e2"), (3, "7")]


def test_nested_values_are_text_and_booleans_words() -> None:
    assert pairs(json_(b'{"k": 1, "s": {"a": [1, "x"]}}\n{"k": 2, "s": true}\n')) == [
        (1, '{"a":[1,"x"]}'),
        (2, "true"),
    ]


def test_of_equal_keys_the_first_one_counts() -> None:
    assert pairs(json_(b'{"k": 1, "s": "a", "s": "b"}\n')) == [(1, "a")]


def test_a_refused_record_is_told_with_its_number_text_and_reason() -> None:
    records = {
        b'{"k": 1}': None,
        b'{"k": 2': "malformed JSON",
        b'{"k": 3,}': "malformed JSON",
        b'{"k": NaN}': "malformed JSON",
        b'{"k": 4} {"k": 4}': "malformed JSON",
        b'[{"k": 5}]': "JSON data is array-object, `strip_outer_array` must be TRUE",
        b"6": "the row is no JSON object",
        b'{"x": 7}': "all fields is null, this is a invalid row",
        b'{"k": "\xff"}': "the row is not UTF-8",
        b'{"k": 9, "s": "\\ud800"}': "malformed JSON",
        b'{"k": 10.5}': "column(k) value is incorrect",
        b'{"k": null}': "column(k) is null",
        b'{"k": ' + b"[" * 10_000 + b"]" * 10_000 + b"}": "malformed JSON",
        b'{"k": 13}': None,
    }
    found = json_(b"\n".join(records))
    assert found.rows == [{"k": 1, "s": None}, {"k": 13, "s": None}]
    reasons = {number: reason for number, _, reason in found.refused}
    for number, (record, reason) in enumerate(records.items(), 1):
        assert reasons.get(number, "").startswith(reason or ""), record
        assert (number in reasons) == (reason is not None), record
    assert found.total == len(records)


def test_records_that_fit_only_together_are_refused_each() -> None:
    found = json_(b'{"k": 1\n"s": "x"}\n{"k": 2}, {"k": 3}\n{"k": 4}\n')
    assert found.rows == [{"k": 4, "s": None}]
    assert [number for number, _, _ in found.refused] == [1, 2, 3]


@pytest.mark.parametrize("headers", [{}, {"strip_outer_array": "true"}, {"read_json_by_line": "false"}])
def test_an_endless_record_ends_the_load(headers: dict[str, str]) -> None:
    body = b'[{"k": 1, "s": "' + b"a" * 100_000
    settings = BodySettings(chunk_bytes=1000, record_bytes_max=10_000)
    with pytest.raises(Refused, match="a record is too long"):
        decoded(body, plain_schema(), settings, format="json", **headers)
