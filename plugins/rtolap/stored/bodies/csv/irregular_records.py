"""Blocks in which enclosing characters stand elsewhere than at the edges of fields: one field after another.

A field that begins with the enclosing character ends at the next one that is neither doubled nor escaped. If
no separator follows there, or there is no such end, its line is malformed. Elsewhere the character is
ordinary text.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from rtolap.stored.bodies.options import CsvOptions


def cut_irregular(data: bytes, options: CsvOptions, final: bool) -> tuple[Any, ...]:
    """Return the fields of `cut.Fields`, in its order."""
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
    longs = [
        np.array(part, np.int64) for part in (starts[:first], ends[:first], counts, line_starts, line_ends)
    ]
    return (*longs, line_start, np.array(enclosed[:first], bool), True, np.array(malformed, bool))
