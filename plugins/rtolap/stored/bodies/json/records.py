"""A JSON body → its records, as text: by line, or as the elements of an array that is not held in memory.

With `json_root`, or when the body is one document, a document is held whole, up to the length of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from rtolap.base.errors import Corrupted
from rtolap.stored.bodies.blocks import whole_records
from rtolap.stored.bodies.csv.cut import escaped
from rtolap.stored.bodies.json.paths import parse_path, raw_at
from rtolap.stored.bodies.options import CsvOptions, JsonOptions
from rtolap.stored.bodies.settings import BodySettings

_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_QUOTE, _ESCAPE, _COMMA = b'"\\,'
_OPEN, _CLOSE = tuple(b"{["), tuple(b"}]")
_SPACE = b" \t\r\n"
NOT_AN_ARRAY = "JSON data is not an array-object, `strip_outer_array` must be FALSE"
NO_ROOT = "the JSON root is not there"


class Records(NamedTuple):
    """The records of a body.

    Attributes:
        texts: the records.
        refused: the places in `texts` that hold no record, with the reasons.
    """

    texts: list[bytes]
    refused: dict[int, str]


def records(
    chunks: Iterator[bytes], options: JsonOptions, csv: CsvOptions, settings: BodySettings
) -> Iterator[Records]:
    """Yield records. Raises TooLarge for a record that is too long, Corrupted for an array that does not
    end."""
    root = () if options.root is None else parse_path(options.root, "json_root")
    elements = options.strip_outer_array and not options.by_line and not root
    taker = _Elements() if elements else None

    def lines(data: bytes, final: bool) -> tuple[int, Records]:
        end = len(data) if final else data.rfind(csv.line_delimiter) + len(csv.line_delimiter)
        if end < len(csv.line_delimiter) and not final:
            return 0, Records([], {})
        parts = data[:end].split(csv.line_delimiter)
        return end, _records([part for part in parts if part.strip()])

    def document(data: bytes, final: bool) -> tuple[int, Records]:
        return (len(data), _records([data] if data.strip() else [])) if final else (0, Records([], {}))

    def _records(documents: list[bytes]) -> Records:
        if not root and not options.strip_outer_array:
            return Records(documents, {})
        texts: list[bytes] = []
        refused: dict[int, str] = {}
        for document in documents:
            inner, reason = _inside(document, root, options.strip_outer_array)
            if reason is not None:
                refused[len(texts)] = reason
            texts += inner
        return Records(texts, refused)

    yield from whole_records(
        chunks,
        taker.read_records if taker is not None else lines if options.by_line else document,
        size_bytes=settings.chunk_bytes,
        record_bytes_max=settings.record_bytes_max,
    )
    if taker is not None:
        taker.check_ended()


def is_by_line(options: JsonOptions, csv: CsvOptions) -> bool:
    """Return whether each line of the body is a record."""
    plain = options.by_line and not options.strip_outer_array and options.root is None
    return plain and csv.line_delimiter == b"\n"


def line_blocks(chunks: Iterator[bytes], settings: BodySettings) -> Iterator[bytes]:
    """Yield the body in blocks of whole lines. Raises TooLarge for a line that is too long."""

    def whole_lines(data: bytes, final: bool) -> tuple[int, bytes]:
        end = len(data) if final else data.rfind(b"\n") + 1
        return end, data if end == len(data) else data[:end]

    return whole_records(
        chunks, whole_lines, size_bytes=settings.chunk_bytes, record_bytes_max=settings.record_bytes_max
    )


def _inside(document: bytes, root: tuple[str | int, ...], strip: bool) -> tuple[list[bytes], str | None]:
    """Return the records of one document; itself, and why not."""
    try:
        inner = raw_at(document, root)
        if inner is None:
            return [document], NO_ROOT
        return ([bytes(item) for item in _ITEMS.decode(inner)], None) if strip else ([inner], None)
    except msgspec.ValidationError:
        return [document], NOT_AN_ARRAY
    except (msgspec.DecodeError, RecursionError) as error:
        return [document], f"malformed JSON: {error}"


class _Elements:
    """Elements of one array, cut at the commas that stand directly in it."""

    def __init__(self) -> None:
        self._begun = self._ended = False

    def check_ended(self) -> None:
        if self._begun and not self._ended:
            raise Corrupted("the body's JSON array does not end", expected="]", found="the end of the body")

    def read_records(self, data: bytes, final: bool) -> tuple[int, Records]:
        at = 0
        if not self._begun:
            at = len(data) - len(data.lstrip(_SPACE))
            if at == len(data):
                return at, Records([], {})
            if data[at : at + 1] != b"[":
                raise Corrupted("the body is no JSON array", expected="[", found=repr(data[at : at + 20]))
            self._begun, at = True, at + 1
        if self._ended:
            self._check_rest(data)
            return len(data), Records([], {})
        cuts, end = _cuts(data, at)
        texts = []
        for cut in cuts.tolist():
            texts.append(data[at:cut])
            at = cut + 1
        if end is not None:
            last = data[at:end]
            texts += [last] if last.strip() or texts else []
            self._ended, at = True, end + 1
            self._check_rest(data[at:])
            at = len(data)
        return len(data) if final else at, Records(texts, {})

    def _check_rest(self, unread: bytes) -> None:
        if unread.strip(_SPACE):
            raise Corrupted("more than one JSON array", expected="the end", found=repr(unread.strip()[:20]))


def _cuts(data: bytes, start: int) -> tuple[np.ndarray, int | None]:
    """Return the commas between elements, and the bracket that ends the array, if it is there."""
    text = np.frombuffer(data, np.uint8)[start:]
    quotes = np.flatnonzero(text == _QUOTE)
    if b"\\" in data:
        quotes = quotes[~escaped(text, _ESCAPE, quotes)]
    places = np.flatnonzero(_STRUCTURE[text] != 0)
    kinds = _STRUCTURE[text[places]]
    outside = (np.searchsorted(quotes, places) & 1) == 0
    places, kinds = places[outside], kinds[outside]
    steps = np.where(kinds == _IS_COMMA, 0, kinds)
    depth = np.cumsum(steps, dtype=np.int64)
    closed = np.flatnonzero(depth < 0)
    end = int(closed[0]) if len(closed) else len(places)
    cuts = places[:end][(kinds[:end] == _IS_COMMA) & (depth[:end] == 0)]
    return cuts + start, int(places[end]) + start if len(closed) else None


_IS_COMMA = 2
_STRUCTURE = np.zeros(256, np.int8)
_STRUCTURE[list(_OPEN)] = 1
_STRUCTURE[list(_CLOSE)] = -1
_STRUCTURE[_COMMA] = _IS_COMMA
