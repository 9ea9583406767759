"""JSON → source columns, as text: what stands at a column's path, null for null and where nothing does.

The engine reads values by the column. It is lenient, and it reads fractions as doubles; so a strict parser
looks at all records before, and those with a fraction that a double may not keep (with `num_as_string`: with
any) are read once more, as written. Of two equal keys the first one counts.

Lines that are flat objects go neither way: `flat` cuts their texts out of the body, to the same result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.undecodable import UNDECODABLE
from rtolap.stored.bodies.batches import Longs, Mask, Refusals, SourceRows, together
from rtolap.stored.bodies.blocks import is_utf8
from rtolap.stored.bodies.expressions import Engine
from rtolap.stored.bodies.json.flat import FlatRows, flat_rows
from rtolap.stored.bodies.json.members import Kind, Wanted
from rtolap.stored.bodies.json.paths import pointer, value_at
from rtolap.stored.bodies.json.quotes import lines_of
from rtolap.stored.bodies.json.records import Records, is_by_line, line_blocks, records
from rtolap.stored.bodies.json.tokens import LONG_RUN
from rtolap.stored.bodies.options import LoadOptions
from rtolap.stored.bodies.settings import BodySettings

_OBJECT = msgspec.defstruct("Object", [])
_ONE, _ALL = msgspec.json.Decoder(_OBJECT), msgspec.json.Decoder(list[_OBJECT])  # type: ignore[valid-type]
_ARRAY = "JSON data is array-object, `strip_outer_array` must be TRUE"
_NO_FIELD = "all fields is null, this is a invalid row"
_FRACTION = re.compile(rb"[0-9][.eE]")
_IN_NUMBER = np.zeros(256, bool)
_IN_NUMBER[list(b"0123456789.")] = True


class JsonReader:
    """Reader of one JSON body. `paths`: those of its columns, by name. `kinds`: those that may come typed."""

    def __init__(
        self,
        paths: dict[str, tuple[str | int, ...]],
        options: LoadOptions,
        engine: Callable[[], Engine],
        settings: BodySettings,
        kinds: Mapping[str, Kind] = {},
    ) -> None:
        self._paths, self._options, self._engine, self._settings = paths, options, engine, settings
        written = ", ".join(_literal(pointer(steps)) for steps in paths.values())
        self._values = f"SELECT TRY(json_extract_string(c0, [{written}])) FROM rows"
        self._exists = f"SELECT json_exists(c0, [{written}]) FROM rows"
        names = [str(steps[0]) for steps in paths.values() if len(steps) == 1]
        #: what is wanted of flat records; None where columns are not just members of a record
        self._wanted: Wanted | None = None
        if [*paths] == names:
            self._wanted = {name: kinds.get(name, "text") for name in names}
        self._rows = 0

    def read(self, chunks: Iterator[bytes]) -> Iterator[SourceRows]:
        if self._wanted is not None and is_by_line(self._options.json, self._options.csv):
            for block in line_blocks(chunks, self._settings):
                source = self._lines(block, self._wanted)
                if source.total:
                    yield source
            return
        for chunk_records in records(chunks, self._options.json, self._options.csv, self._settings):
            if chunk_records.texts:
                yield self._source(chunk_records, self._numbers(len(chunk_records.texts)))

    def _numbers(self, count: int) -> Longs:
        """Return the numbers of the next rows of the body."""
        numbers = self._rows + np.arange(1, count + 1)
        self._rows += count
        return numbers

    def _lines(self, block: bytes, wanted: Wanted) -> SourceRows:
        """Return the rows of whole lines: flat ones all at once, others record by record."""
        lines = lines_of(block)
        numbers = self._numbers(len(lines.starts))
        as_written = self._options.json.num_as_string
        found = flat_rows(block, lines, wanted, as_written=as_written) if is_utf8(block) else []

        def texts(places: Longs) -> list[str]:
            spans = zip(lines.starts[places].tolist(), lines.ends[places].tolist(), strict=True)
            return [block[start:end].strip().decode(errors="replace") for start, end in spans]

        parts = [self._flat_source(each, numbers, texts) for each in found]
        left = np.ones(len(numbers), bool)
        for each in found:
            left[each.rows] = False
        if left.any() or not parts:
            spans = zip(lines.starts[left].tolist(), lines.ends[left].tolist(), strict=True)
            singles = Records([block[start:end] for start, end in spans], {})
            parts.append(self._source(singles, numbers[left]))
        return parts[0] if len(parts) == 1 else together([_as_text(part) for part in parts])

    def _flat_source(self, flat: FlatRows, numbers: Longs, texts: Callable[[Longs], list[str]]) -> SourceRows:
        count = len(flat.rows)
        lacking = [name for name in self._paths if name not in flat.columns]
        nothing = pa.nulls(count, pa.string())
        return SourceRows(
            {name: flat.columns.get(name, nothing) for name in self._paths},
            numbers[flat.rows],
            lambda rows: texts(flat.rows[rows]),
            Refusals(self._settings.rejected_rows_max),
            count,
            {name: np.ones(count, bool) for name in lacking},
        )

    def _source(self, chunk_records: Records, numbers: Longs) -> SourceRows:
        refused = Refusals(self._settings.rejected_rows_max)

        def texts(places: Longs) -> list[str]:
            return [chunk_records.texts[place].strip().decode(errors="replace") for place in places.tolist()]

        def refuse(reasons: dict[int, str]) -> None:
            refused.add_rejected(numbers, texts, np.array(list(reasons), np.int64), list(reasons.values()))

        problems = chunk_records.refused | (
            {} if _all_fit(chunk_records.texts) else _problems(chunk_records.texts, chunk_records.refused)
        )
        list_texts, places, lists = self._lists(chunk_records.texts, problems)
        if lists.null_count:  # what fits only together with its neighbours, or what only the engine refuses
            problems |= _problems(chunk_records.texts, problems)
            list_texts, places, lists = self._lists(chunk_records.texts, problems)
            no_lists = places[np.asarray(lists.is_null().to_numpy(zero_copy_only=False))]
            if len(no_lists):
                problems |= dict.fromkeys(no_lists.tolist(), "malformed JSON")
                list_texts, places, lists = self._lists(chunk_records.texts, problems)
        refuse(problems)
        columns, named = self._columns(list_texts, lists)
        empty = ~named.any(axis=1)
        if empty.any():
            refuse(dict.fromkeys(places[empty].tolist(), _NO_FIELD))
            nonempty = pa.array(~empty)
            columns = {name: values.filter(nonempty) for name, values in columns.items()}
            places, named = places[~empty], named[~empty]
        absent = {name: ~named[:, at] for at, name in enumerate(columns) if not named[:, at].all()}
        return SourceRows(
            columns,
            numbers[places],
            lambda rows: texts(places[rows]),
            refused,
            len(chunk_records.texts),
            absent,
        )

    def _lists(self, texts: list[bytes], problems: dict[int, str]) -> tuple[list[bytes], Longs, pa.Array]:
        """Return records without problems, their places, and each one's values in the order of columns."""
        places = np.delete(np.arange(len(texts)), np.array(list(problems), np.int64))
        list_texts = [texts[place] for place in places.tolist()] if problems else texts
        return list_texts, places, self._engine().query(self._values, [pa.array(list_texts, pa.string())])[0]

    def _columns(self, texts: list[bytes], lists: pa.Array) -> tuple[dict[str, pa.Array], Mask]:
        """Return them by name; and by row and column, whether the record says something of it (also null)."""
        width = len(self._paths)
        flat = lists.flatten()
        first = np.arange(len(texts)) * width
        columns = {name: flat.take(pa.array(first + at)) for at, name in enumerate(self._paths)}
        named = np.ones((len(texts), width), bool)
        doubtful = np.flatnonzero(_any_null(columns, len(texts)))
        if len(doubtful):
            documents = pa.array([texts[row] for row in doubtful.tolist()], pa.string())
            found = self._engine().query(self._exists, [documents])[0]
            named[doubtful] = np.asarray(found.flatten().to_numpy(zero_copy_only=False)).reshape(-1, width)
        self._patch(columns, texts)
        return columns, named

    def _patch(self, columns: dict[str, pa.Array], texts: list[bytes]) -> None:
        """Patch in fractions as they are written."""
        is_text = self._options.json.num_as_string
        rows = _with_fractions(texts) if is_text else _with_long_fractions(texts)
        exact: dict[str, dict[int, str]] = {}
        for row in rows:
            record = json.loads(texts[row], parse_float=_Written, object_pairs_hook=_first_of_each)
            for name, steps in self._paths.items():
                value = value_at(record, steps)
                if isinstance(value, _Written) and (is_text or len(value) >= LONG_RUN):
                    exact.setdefault(name, {})[row] = str(value)
        for name, values in exact.items():
            mask = np.zeros(len(texts), bool)
            mask[list(values)] = True
            ordered = [values[row] for row in sorted(values)]
            columns[name] = pc.replace_with_mask(
                columns[name], pa.array(mask), pa.array(ordered, pa.string())
            )


def _as_text(part: SourceRows) -> SourceRows:
    """Return rows whose columns are all text, as those of other parts are."""
    return replace(part, columns={name: values.cast(pa.string()) for name, values in part.columns.items()})


class _Written(str):
    """A fraction, as its digits."""

    __slots__ = ()


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _problems(texts: Sequence[bytes], known: dict[int, str]) -> dict[int, str]:
    """Return records that are no JSON objects, or no UTF-8: by place; one by one."""
    problems_by_place = {place: _problem(text) for place, text in enumerate(texts) if place not in known}
    return {place: problem for place, problem in problems_by_place.items() if problem is not None}


def _all_fit(texts: Sequence[bytes]) -> bool:
    """Return whether all texts fit, checked together: each one has to be one value to the engine, too."""
    joined = b"[" + b",".join(texts) + b"]"
    try:
        joined.decode()
        return len(_ALL.decode(joined)) == len(texts)
    except UNDECODABLE:
        return False


def _problem(text: bytes) -> str | None:
    try:
        text.decode()
        _ONE.decode(text)
    except UnicodeDecodeError as error:
        return f"the row is not UTF-8: byte {error.start}"
    except msgspec.ValidationError:
        return _ARRAY if text.strip().startswith(b"[") else "the row is no JSON object"
    except (msgspec.DecodeError, RecursionError) as error:
        return f"malformed JSON: {error}"
    return None


def _any_null(columns: dict[str, pa.Array], rows: int) -> Mask:
    is_any_null = np.zeros(rows, bool)
    for values in columns.values():
        if values.null_count:
            is_any_null |= np.asarray(values.is_null().to_numpy(zero_copy_only=False))
    return is_any_null


def _rows_at(texts: Sequence[bytes], places: Longs) -> list[int]:
    """Find the texts in which places in their join by one character lie."""
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
    rows: list[int] = np.unique(np.searchsorted(ends, places, side="right")).tolist()
    return rows


def _with_fractions(texts: Sequence[bytes]) -> list[int]:
    """Return records with a fraction, perhaps within strings."""
    starts = [match.start() for match in _FRACTION.finditer(b"\n".join(texts))]
    return _rows_at(texts, np.array(starts, np.int64))


def _with_long_fractions(texts: Sequence[bytes]) -> list[int]:
    """Return records with one that a double may not keep."""
    joined = np.frombuffer(b"\n".join((b"", *texts, b"")), np.uint8)
    in_number = _IN_NUMBER[joined]
    edges = np.flatnonzero(in_number[1:] != in_number[:-1]) + 1
    starts, ends = edges[::2], edges[1::2]
    long = ends - starts >= LONG_RUN
    if not long.any():
        return []
    starts, ends = starts[long], ends[long]
    points = np.flatnonzero(joined == ord("."))
    is_fraction = np.searchsorted(points, starts) < np.searchsorted(points, ends)
    is_fraction |= np.isin(joined[ends], tuple(b"eE"))
    return _rows_at(texts, starts[is_fraction] - 1)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
