"""CSV bodies: what is a row, what is refused, and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.base.errors import Refused
from rtolap.stored.bodies.batches import RowCounts, check_ratio
from rtolap.stored.bodies.decode import decode_body
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.bodies.settings import BodySettings

from tests.support.stored.body_tables import decoded, plain_schema


def rows(body: bytes, **headers: str) -> list[tuple[int, str | None]]:
    found = decoded(body, plain_schema(), **headers)
    assert not found.refused
    return [(row["k"], row["s"]) for row in found.rows]


def test_tabs_newlines_and_backslash_n_are_the_defaults() -> None:
    assert rows(b"1\ta\n2\t\\N\n3\t\n") == [(1, "a"), (2, None), (3, "")]


def test_windows_line_ends_and_empty_lines_are_no_data() -> None:
    assert rows(b"1\ta\r\n\r\n\n2\tb") == [(1, "a"), (2, "b")]


def test_a_byte_order_mark_is_no_data() -> None:
    assert rows(b"\xef\xbb\xbf1\ta\n") == [(1, "a")]


def test_separators_of_several_characters_count_from_the_left() -> None:
    assert rows(b"1||a|;;2|||b;;", column_separator="||", line_delimiter=";;") == [(1, "a|"), (2, "|b")]


def test_enclosed_fields_hold_separators_delimiters_and_doubled_marks() -> None:
    body = b'1,"a,b"\n2,"c\nd"\n3,"say ""hi"""\n4,"\\N"\n5,in"ch\n'
    expected = [(1, "a,b"), (2, "c\nd"), (3, 'say "hi"'), (4, "\\N"), (5, 'in"ch')]
    assert rows(body, column_separator=",", enclose='"') == expected


def test_enclosed_fields_may_be_escaped() -> None:
    body = b"1,'it\\'s'\n2,'a\\\\'\n3,a\\b\n"
    assert rows(body, column_separator=",", enclose="'", escape="\\") == [
        (1, "it's"),
        (2, "a\\"),
        (3, "a\\b"),
    ]


def test_empty_fields_may_be_null_and_quotes_trimmed() -> None:
    assert rows(b'1,""\n2,"x"\n', column_separator=",", trim_double_quotes="true") == [(1, ""), (2, "x")]
    found = rows(b'1,""\n2,x\n', column_separator=",", trim_double_quotes="true", empty_field_as_null="true")
    assert found == [(1, None), (2, "x")]


@pytest.mark.parametrize(
    ("layout", "skip", "head"),
    [
        ("csv", "2", b"x\ny\n"),
        ("csv_with_names", "0", b"k,s\n"),
        ("csv_with_names_and_types", "0", b"k,s\nint,string\n"),
        ("csv_with_names", "1", b"# made by hand\nk,s\n"),
    ],
)
def test_header_lines_are_skipped_and_not_counted(layout: str, skip: str, head: bytes) -> None:
    found = decoded(
        head + b"1,a\nx,b\n", plain_schema(), format=layout, skip_lines=skip, column_separator=","
    )
    assert found.rows == [{"k": 1, "s": "a"}]
    assert [number for number, _, _ in found.refused] == [2]
    assert found.total == 2


def test_a_refused_line_is_told_with_its_number_text_and_reason() -> None:
    body = b"1,a\n2\n3,b,c\n4,\xff\n5,d\nno,e\n\\N,f\n"
    found = decoded(body, plain_schema(), column_separator=",")
    assert found.rows == [{"k": 1, "s": "a"}, {"k": 5, "s": "d"}]
    assert found.refused == [
        (
            2,
            "2",
            "actual column number in csv file is less than schema column number. "
            "actual number: 1, schema column number: 2",
        ),
        (
            3,
            "3,b,c",
            "actual column number in csv file is more than schema column number. "
            "actual number: 3, schema column number: 2",
        ),
        (4, "4,�", "the row is not UTF-8"),
        (6, "no,e", "column(k) value is incorrect while strict mode is false, src value is no; expected int"),
        (7, "\\N,f", "column(k) is null, but the column is not nullable"),
    ]
    assert found.total == 7


def test_an_enclosed_field_that_does_not_end_costs_its_row() -> None:
    found = decoded(b'1,"a\n2,b\n', plain_schema(), column_separator=",", enclose='"')
    assert found.rows == []
    assert [reason for _, _, reason in found.refused] == [
        "an enclosed field does not end, or goes on behind its end"
    ]


def test_a_lonely_mark_does_not_swallow_the_rest() -> None:
    body = b'1,5" pipe\n' + b"2,b\n" * 100_000
    settings = BodySettings(record_bytes_max=10_000, chunk_bytes=1000)
    found = decoded(body, plain_schema(), settings, column_separator=",", enclose='"')
    assert len(found.rows) == 100_001


def test_refused_rows_are_all_counted_and_some_kept() -> None:
    settings = BodySettings(rejected_rows_max=3)
    counts = RowCounts()
    batches = decode_body(iter([b"x\ta\n" * 50 + b"1\tb\n"]), LoadOptions(), plain_schema(), settings)
    for batch in batches:
        counts.add_batch(batch)
        assert batch.rejected is not None
        assert batch.rejected.rows.num_rows == 3
    assert (counts.total, counts.filtered, counts.loaded) == (51, 50, 1)


def test_too_large_a_share_of_refused_rows_fails_the_load() -> None:
    counts = RowCounts(total=110, loaded=90, filtered=10, unselected=10)
    check_ratio(counts, 0.1)
    with pytest.raises(Refused, match=r"^too many filtered rows"):
        check_ratio(counts, 0.0999)
    check_ratio(RowCounts(total=5, unselected=5), 0)


def test_an_endless_line_ends_the_load_in_bounded_memory() -> None:
    settings = BodySettings(record_bytes_max=1 << 20, chunk_bytes=1 << 16)
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1 << 16
            yield b"a" * (1 << 16)

    with pytest.raises(Refused, match="a record is too long"):
        list(decode_body(endless(), LoadOptions(), plain_schema(), settings))
    assert taken <= (1 << 20) + 2 * (1 << 16)


def test_rows_come_before_the_body_has_ended() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"1\ta\n" * 100
        yield b"2\tb"
        raise ConnectionResetError

    batches = decode_body(chunks(), LoadOptions(), plain_schema(), BodySettings(chunk_bytes=64))
    assert next(batches).rows.num_rows == 16
    with pytest.raises(ConnectionResetError):
        list(batches)
