"""Text → where its lines and fields begin and end. Lines come first; separators are looked for within them.

Within an enclosed field (one that begins and ends with the enclosing character) neither counts; there the
enclosing character is doubled, or escaped. This is done over whole blocks, by the parity of enclosing
characters before each separator, which holds where all of them stand at a field's edges. A block in which one
does not is cut field by field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rtolap.stored.bodies.options import CsvOptions

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
_QUOTE, _RETURN = ord('"'), ord("\r")


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of a text.

    Attributes:
        starts: of each field, in order, behind what encloses it.
        ends: of each field, before what encloses it.
        counts: fields of each line.


    `enclosed`: which fields are (None: none is). `rewritten`: some hold doubled or escaped characters.
    `malformed`: by line, fields that are enclosed and go on behind their end, or never end. `lines`: each
    line's start and end.
    """

    starts: Longs
    ends: Longs
    counts: Longs
    line_starts: Longs
    line_ends: Longs
    consumed: int
    enclosed: Mask | None = None
    rewritten: bool = False
    malformed: Mask | None = None


def cut(data: bytes, options: CsvOptions, final: bool) -> Fields:
    """Cut all lines that are whole; a final one may lack its delimiter."""
    text = np.frombuffer(data, np.uint8)
    if options.enclose and options.enclose in data:
        fields = _cut_enclosed(data, text, options, final)
        return fields if fields is not None else _cut_irregular(data, options, final)
    places, lengths, is_line = _separators(text, options)
    return _fields(text, places, lengths, is_line, options, final)


def _fields(
    text: Bytes, places: Longs, lengths: Longs | int, is_line: Mask, options: CsvOptions, final: bool
) -> Fields:
    ends_of_lines = np.flatnonzero(is_line)
    widths = np.broadcast_to(np.asarray(lengths, np.int64), places.shape)
    count = int(ends_of_lines[-1]) + 1 if len(ends_of_lines) else 0
    done = int(places[count - 1] + widths[count - 1]) if count else 0
    if final and done < len(text):  # a delimiter at the end that is not there
        places, widths = np.append(places, len(text)), np.append(widths, 0)
        ends_of_lines = np.append(ends_of_lines, len(places) - 1)
        count, done = len(places), len(text)
    ends = places[:count]
    starts = np.zeros(count, np.int64)
    starts[1:] = ends[:-1] + widths[: max(count - 1, 0)]
    firsts = np.zeros(len(ends_of_lines), np.int64)
    firsts[1:] = ends_of_lines[:-1] + 1
    line_starts, line_ends = starts[firsts], ends[ends_of_lines]
    if options.line_delimiter == b"\n" and len(text):
        returned = (line_ends > line_starts) & (text[np.maximum(line_ends, 1) - 1] == _RETURN)
        if returned.any():
            line_ends = line_ends - returned
            ends = ends.copy()
            ends[ends_of_lines] = np.maximum(line_ends, starts[ends_of_lines])
    return Fields(starts, ends, ends_of_lines - firsts + 1, line_starts, line_ends, done)


def _cut_enclosed(data: bytes, text: Bytes, options: CsvOptions, final: bool) -> Fields | None:
    """Return None when some enclosing character does not stand at a field's edge."""
    marks = np.flatnonzero(text == options.enclose[0])
    escapes = options.escape and options.escape in data
    if escapes:
        marks = marks[~escaped(text, options.escape[0], marks)]
    places, lengths, is_line = _separators(text, options)
    outside = (np.searchsorted(marks, places) & 1) == 0
    widths = np.broadcast_to(np.asarray(lengths, np.int64), places.shape)
    fields = _fields(text, places[outside], widths[outside], is_line[outside], options, final)
    done = int(np.searchsorted(marks, fields.consumed))
    if not _open_at_edges(text, marks[done::2], options):
        return None
    marks = marks[:done]
    if len(marks) & 1:
        return None  # the last field never ends
    first = np.searchsorted(marks, fields.starts)
    quotes = np.searchsorted(marks, fields.ends) - first
    enclosed = quotes > 0
    if not enclosed.any():
        return fields
    at, until = fields.starts[enclosed], fields.ends[enclosed]
    first, quotes = first[enclosed], quotes[enclosed]
    whole = (marks[first] == at) & (marks[first + quotes - 1] == until - 1) & (quotes % 2 == 0)
    # between the first and the last, they must come in pairs of neighbours
    inner = np.ones(len(marks), bool)
    inner[first] = False
    inner[first + quotes - 1] = False
    pairs = marks[inner]
    if not whole.all() or (pairs[1::2] - pairs[::2] != 1).any():
        return None
    starts, ends = fields.starts.copy(), fields.ends.copy()
    starts[enclosed] += 1
    ends[enclosed] -= 1
    return replace(
        fields, starts=starts, ends=ends, enclosed=enclosed, rewritten=bool(len(pairs)) or bool(escapes)
    )


def _open_at_edges(text: Bytes, opening: Longs, options: CsvOptions) -> bool:
    """Return True if a line may be incomplete because an enclosed field of it is."""
    before = text[opening[opening > 0] - 1]
    edges = (options.column_separator[-1], options.line_delimiter[-1], options.enclose[0])
    return bool(np.isin(before, edges).all())


def escaped(text: Bytes, escape: int, places: Longs) -> Mask:
    """Find those of `places` that stand behind an odd number of escaping characters."""
    is_escape = text == escape
    last_other = np.maximum.accumulate(np.where(is_escape, -1, np.arange(len(text))))
    before = places - 1
    run = np.where(before >= 0, before - last_other[np.maximum(before, 0)], 0)
    return np.asarray(run % 2 == 1)


def _separators(text: Bytes, options: CsvOptions) -> tuple[Longs, Longs | int, Mask]:
    """Return where separators and delimiters begin, their lengths, and a mask of the delimiters."""
    column, line = options.column_separator, options.line_delimiter
    if len(column) == 1 and len(line) == 1:
        places = np.flatnonzero((text == column[0]) | (text == line[0]))
        return places, 1, text[places] == line[0]
    lines = occurrences(text, line)
    columns = occurrences(text, column, lines, len(line))
    places = np.concatenate([lines, columns])
    order = np.argsort(places, kind="stable")
    is_line = order < len(lines)
    return places[order], np.where(is_line, len(line), len(column)), is_line


def occurrences(text: Bytes, pattern: bytes, taken: Longs | None = None, taken_length: int = 0) -> Longs:
    """Return where `pattern` is found, from the left, without overlaps, outside what is `taken`."""
    places = np.flatnonzero(text[: max(len(text) - len(pattern) + 1, 0)] == pattern[0])
    for at in range(1, len(pattern)):
        places = places[text[places + at] == pattern[at]]
    if taken is not None and len(taken) and len(places):
        after = np.searchsorted(taken, places)
        free = np.ones(len(places), bool)
        has_next = after < len(taken)
        free[has_next] = places[has_next] + len(pattern) <= taken[after[has_next]]
        has_last = after > 0
        free[has_last] &= places[has_last] >= taken[after[has_last] - 1] + taken_length
        places = places[free]
    if len(places) < 2 or (np.diff(places) >= len(pattern)).all():
        return places
    chosen, end = [], 0
    for place in places.tolist():  # only where a pattern overlaps itself
        if place >= end:
            chosen.append(place)
            end = place + len(pattern)
    return np.array(chosen, np.int64)


def trimmed(text: Bytes, fields: Fields) -> Fields:
    """Return the fields without a pair of double quotes around each."""
    wide = fields.ends - fields.starts >= 2
    at, until = fields.starts[wide], fields.ends[wide]
    pair = (text[at] == _QUOTE) & (text[until - 1] == _QUOTE)
    moved = np.zeros(len(fields.starts), np.int64)
    moved[np.flatnonzero(wide)[pair]] = 1
    return replace(fields, starts=fields.starts + moved, ends=fields.ends - moved)


def _cut_irregular(data: bytes, options: CsvOptions, final: bool) -> Fields:
    """Cut a block in which enclosing characters stand elsewhere than at the edges of fields, one by one.

    A field that begins with the enclosing character ends at the next one that is neither doubled nor escaped.
    If no separator follows there, or there is no such end, its line is malformed. Elsewhere the character is
    ordinary text.
    """
    line, column = re.escape(options.line_delimiter), re.escape(options.column_separator)
    mark, escape = re.escape(options.enclose), re.escape(options.escape)
    inner = rb"[^%b]|%b%b" % (mark, mark, mark)
    if escape:
        inner = rb"[^%b%b]|%b.|%b%b" % (mark, escape, escape, mark, mark)
    enclosed_field = re.compile(rb"%b((?:%b)*+)%b" % (mark, inner, mark), re.DOTALL)
    end_of_field = re.compile(rb"(%b)|%b" % (line, column))

    starts: list[int] = []
    ends: list[int] = []
    enclosed: list[bool] = []
    counts: list[int] = []
    line_starts: list[int] = []
    line_ends: list[int] = []
    malformed: list[bool] = []
    size, at, line_start, first, bad = len(data), 0, 0, 0, False
    while at < size or (final and len(starts) > first):
        is_enclosed = data[at : at + 1] == options.enclose
        if is_enclosed:
            field = enclosed_field.match(data, at)
            if field is None:
                if not final:
                    break
                start, end, bad, after = at, size, True, None
            else:
                start, end = field.span(1)
                after = end_of_field.match(data, field.end())
                edge = field.end()
                if after is None and options.line_delimiter == b"\n" and data[edge : edge + 2] == b"\r\n":
                    after = end_of_field.match(data, edge + 1)
                if after is None and edge < size:
                    if size - edge < len(options.line_delimiter + options.column_separator) and not final:
                        break
                    after, bad = end_of_field.search(data, edge), True
        else:
            after = end_of_field.search(data, at)
            start, end = at, size if after is None else after.start()
        if after is None and not final:
            break
        starts.append(start)
        ends.append(end)
        enclosed.append(is_enclosed)
        stop = size if after is None else after.start()
        at = size if after is None else after.end()
        if after is None or after[1] is not None:
            if options.line_delimiter == b"\n" and stop > line_start and data[stop - 1 : stop] == b"\r":
                stop -= 1
                ends[-1] = max(min(ends[-1], stop), starts[-1])
            counts.append(len(starts) - first)
            line_starts.append(line_start)
            line_ends.append(stop)
            malformed.append(bad)
            first, line_start, bad = len(starts), at, False
            if after is None:
                break
    return Fields(
        np.array(starts[:first], np.int64),
        np.array(ends[:first], np.int64),
        np.array(counts, np.int64),
        np.array(line_starts, np.int64),
        np.array(line_ends, np.int64),
        consumed=line_start,
        enclosed=np.array(enclosed[:first], bool),
        rewritten=True,
        malformed=np.array(malformed, bool),
    )
