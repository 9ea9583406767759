"""CSV records: which character stands between fields, whether one is a header, and what the fields hold."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from rtolap.model.formats.record_format import RecordFormat
from rtolap.project.names import plain_name
from rtolap.project.records import Record
from rtolap.project.times import time_formats
from rtolap.project.values import Leaf, Sample, kind_of

DELIMITERS = ",;\t|"
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")  # 007 is a text
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_TRUTH = {"true": True, "false": False}
_NAME = re.compile(r"[^\W\d][\w .:/#()-]{0,60}")


def csv_sample(records: Sequence[Record]) -> Sample:
    """Return what the fields hold of the records that have as many of them as most.

    A header is none of these: a table refuses it like any other record that holds no event.
    """
    lines = [_line(record.value) for record in records]
    delimiter, width = _delimiter([line for line in lines if line is not None])
    rows, sound = [], []
    for record, line in zip(records, lines, strict=True):
        row = None if line is None else _fields(line, delimiter)
        if row is not None and len(row) == width > 1:
            rows.append(row)
            sound.append(record)
    header = _header(rows)
    if header is not None:
        kept = [row != header for row in rows]  # each partition may begin with it
        rows = [row for row, stays in zip(rows, kept, strict=True) if stays]
        sound = [record for record, stays in zip(sound, kept, strict=True) if stays]
    names: list[str] = []
    for place in range(width):
        names.append(plain_name(f"column {place + 1}" if header is None else header[place], names))
    leaves = [
        _leaf(name, texts) for name, texts in zip(names, zip(*rows, strict=True), strict=False)
    ]  # without rows none
    made = RecordFormat(type="csv", delimiter=delimiter, fields=tuple(names))
    return Sample(made, leaves, {}, sound, [], "a line of CSV with two fields or more")


def _line(value: bytes | None) -> str | None:
    """Return the record's text, as the reader of a table takes it; None for one that it refuses."""
    try:
        line = (value or b"").decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
    return None if not line.strip() or "\n" in line or "\r" in line else line


def _fields(line: str, delimiter: str) -> list[str] | None:
    try:
        (row,) = csv.reader([line], delimiter=delimiter, quotechar='"', doublequote=True, strict=True)
    except (csv.Error, ValueError):
        return None
    return row


def _delimiter(lines: Sequence[str]) -> tuple[str, int]:
    """Return the delimiter by which the most lines have the same number of fields, two or more, and that
    number."""
    found: list[tuple[int, int, str]] = []
    for delimiter in DELIMITERS:
        counts = Counter(len(row) for line in lines if (row := _fields(line, delimiter)) is not None)
        several = [(lines_with, width) for width, lines_with in counts.items() if width > 1]
        if several:
            found.append((*max(several), delimiter))
    if not found:
        return DELIMITERS[0], 0
    _, width, delimiter = max(found, key=lambda each: each[:2])
    return delimiter, width


def _header(rows: Sequence[list[str]]) -> list[str] | None:
    """Return the first row if it is names of fields: each is a name of its own, and one is no value of its
    column."""
    if len(rows) < 2:
        return None
    first = rows[0]
    named = len(set(first)) == len(first) and all(_NAME.fullmatch(field) for field in first)
    if not named:
        return None
    rest = [row for row in rows if row != first]
    for place, field in enumerate(first):
        leaf = _leaf("", [row[place] for row in rest])
        if leaf.kinds and leaf.kinds != {"string"}:
            return first  # names of fields are neither numbers nor truth values
        if leaf.kinds and time_formats(leaf) and not time_formats(_leaf("", [field])):
            return first
    return None


def _leaf(name: str, texts: Sequence[str]) -> Leaf:
    """Return what a field holds: of one kind, and texts where its values are of several."""
    leaf = Leaf((name,))
    given = [text for text in texts if text]
    read: Any = str
    if all(_NUMBER.fullmatch(text) for text in given):
        read = _number
    elif all(text in _TRUTH for text in given):
        read = _TRUTH.__getitem__
    for text in given:
        value = read(text)
        leaf.kinds.add(kind_of(value))
        leaf.values.append(value)
    return leaf


def _number(text: str) -> int | Decimal:
    return int(text) if _INTEGER.fullmatch(text) else Decimal(text)
