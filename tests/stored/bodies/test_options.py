"""Headers of a load, as far as they concern its body."""

from __future__ import annotations

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.stored.bodies.options import CsvOptions, JsonOptions, LoadOptions, load_options, separator


def test_no_header_means_the_documented_defaults() -> None:
    assert load_options({}) == LoadOptions(
        format="csv",
        csv=CsvOptions(column_separator=b"\t", line_delimiter=b"\n"),
        json=JsonOptions(by_line=True, strip_outer_array=False),
        merge_type="APPEND",
        max_filter_ratio=0.0,
        strict_mode=False,
        timezone="UTC",
    )


def test_headers_of_others_are_passed_over() -> None:
    assert load_options({"label": "x", "expect": "100-continue", "timeout": "5"}) == LoadOptions()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (",", b","),
        ("||", b"||"),
        ("\\x01", b"\x01"),
        ("\\x01\\x02", b"\x01\x02"),
        ("a\\x7Cb", b"a|b"),
        ("0x0A", b"\n"),
        ("\\t", b"\t"),
        ("\\r\\n", b"\r\n"),
        ("é", "é".encode()),
    ],
)
def test_separators_may_be_written_in_hexadecimal(text: str, expected: bytes) -> None:
    assert separator(text) == expected


def test_json_is_read_by_line_only_if_nothing_else_is_asked_for() -> None:
    assert load_options({"strip_outer_array": "true"}).json == JsonOptions(
        by_line=False, strip_outer_array=True
    )
    assert load_options({"read_json_by_line": "false"}).json == JsonOptions(by_line=False)
    both = load_options({"read_json_by_line": "true", "strip_outer_array": "true"}).json
    assert both == JsonOptions(by_line=True, strip_outer_array=True)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("format", "xml"),
        ("compress_type", "rar"),
        ("column_separator", "x" * 65),
        ("line_delimiter", "\\t"),
        ("enclose", "ab"),
        ("enclose", "\\t"),
        ("escape", "\\n"),
        ("skip_lines", "-1"),
        ("skip_lines", "x"),
        ("trim_double_quotes", "maybe"),
        ("empty_field_as_null", "1"),
        ("max_filter_ratio", "1.1"),
        ("max_filter_ratio", "nan"),
        ("merge_type", "UPSERT"),
        ("merge_type", "MERGE"),
        ("delete", "k = 1"),
        ("timezone", "Mars/Olympus"),
        ("timezone", "../etc/passwd"),
        ("timezone", "+99:00"),
        ("jsonpaths", "$.a"),
        ("jsonpaths", "[]"),
        ("fuzzy_parse", "si"),
        ("hidden_columns", "a,a"),
    ],
)
def test_a_bad_header_is_named(header: str, text: str) -> None:
    named = "delete" if header == "merge_type" and text == "MERGE" else header
    with pytest.raises(DefinitionError, match=f"header {named}"):
        load_options({header: text})
