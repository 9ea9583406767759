"""Printing for people and for programs, and the exit code of errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from pydantic import BaseModel
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markup import escape
from rich.table import Table

from rtolap.base.errors import RtolapError
from rtolap.base.files import write_atomic
from rtolap.cli.standard_streams import unwritten
from rtolap.model.quantities import instant_text, size_text, span_text

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


console = Console(highlight=False)
error_console = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """Print a JSON document on stdout. Messages, structs, dates, decimals, paths and sets are understood."""
    encoded = msgspec.json.encode(value, enc_hook=_encodable)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")
    sys.stdout.flush()


def _encodable(value: object) -> object:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    as_json: bool = False,
    document: Any = None,
) -> None:
    """Print a table. On a terminal, quantities are written as people read them. Into a pipe, each row is a
    line with tabs between its values, after a line of names. With `as_json`, it is the `document`; without
    one, a list of objects with the columns' names as keys."""
    materialized = [tuple(row) for row in rows]
    if as_json:
        objects = [dict(zip(columns, row, strict=True)) for row in materialized]
        print_json(objects if document is None else document)
        return
    if not sys.stdout.isatty():
        for row in (columns, *materialized):
            sys.stdout.write("\t".join("" if value is None else _plain(value) for value in row) + "\n")
        sys.stdout.flush()
        return
    console.print(text_table(*for_people(columns, materialized), title=title))


def _plain(value: Any) -> str:
    """Return the value on one line without tabs, as MySQL's client writes it into a pipe."""
    text = str(value).replace("\\", "\\\\")
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def for_people(
    columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return a table whose columns in bytes and milliseconds are texts, without the unit in their names."""
    shown = [_shown_column(name, [row[at] for row in rows]) for at, name in enumerate(columns)]
    values = [column for _, column in shown]
    return tuple(name for name, _ in shown), [
        tuple(column[at] for column in values) for at in range(len(rows))
    ]


def _shown_column(name: str, values: list[Any]) -> tuple[str, list[Any]]:
    for suffix, text in _QUANTITIES:
        if not (name.endswith(f"_{suffix}") or name == suffix):
            continue
        if all(value is None or isinstance(value, int | float) for value in values):
            shown = name.removesuffix(suffix).rstrip("_") or _NAMES[suffix]
            return shown, [None if value is None or value != value else text(value) for value in values]
    return name, values


def _moment(value_ms: float) -> str:
    """Return an instant, or a span of time where the number is too small for one."""
    return instant_text(int(value_ms)) if abs(value_ms) >= _INSTANTS_FROM_MS else span_text(value_ms)


_INSTANTS_FROM_MS = 100_000_000_000  # 1973; as a span it would be three years
_QUANTITIES: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("bytes_per_s", lambda value: f"{size_text(value)}/s"),
    ("bytes", size_text),
    ("ms", _moment),
    ("left_s", lambda value: span_text(value * 1000)),
)
_NAMES = {"bytes_per_s": "rate", "bytes": "size", "ms": "time", "left_s": "left"}


class TextTable:
    """A table that leaves no column out: where its columns have no room side by side, each row is a block of
    lines, a line for each column.

    `LEAST_CHARS`: what a column of long texts needs at least.
    """

    LEAST_CHARS = 10

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None) -> None:
        self._columns, self._title = columns, title
        self._cells = [["" if value is None else str(value) for value in row] for row in rows]
        by_column = [[row[at] for row in rows if row[at] is not None] for at in range(len(columns))]
        self._numeric = [
            bool(values) and all(isinstance(value, int | float) for value in values) for values in by_column
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - (len(self._columns) + 1) * _BETWEEN_CHARS  # an edge on each side
        chars = self._column_chars(room)
        yield self._below() if chars is None else self._beside(chars)

    def _column_chars(self, room: int) -> list[int] | None:
        """Return the width of each column, None where they have no room side by side.

        Each has its least; what is left goes to those that want more, a character at a time.
        """
        widest = [
            max((cell_len(line) for row in self._cells for line in row[at].splitlines()), default=0)
            for at in range(len(self._columns))
        ]
        wanted = [max(cell_len(name), most, 1) for name, most in zip(self._columns, widest, strict=True)]
        chars = [
            max(*map(cell_len, name.split() or [""]), 0, most if numeric else min(most, self.LEAST_CHARS), 1)
            for name, most, numeric in zip(self._columns, widest, self._numeric, strict=True)
        ]
        left = room - sum(chars)
        if left < 0 and self._cells:
            return None
        while left > 0 and (short := [at for at in range(len(chars)) if chars[at] < wanted[at]]):
            for at in short[:left]:
                chars[at] += 1
            left -= len(short)
        return chars

    def _beside(self, chars: Sequence[int]) -> Table:
        table = Table(
            title=self._title,
            title_justify="left",
            header_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=0,
        )
        for column, numeric, width in zip(self._columns, self._numeric, chars, strict=True):
            justify: JustifyMethod = "right" if numeric else "left"
            table.add_column(column, justify=justify, overflow="fold", width=width)
        for row in self._cells:
            table.add_row(*map(escape, row))
        return table

    def _below(self) -> Table:
        table = Table(
            title=self._title, title_justify="left", box=None, show_header=False, pad_edge=False, padding=0
        )
        table.add_column(style="bold", min_width=min(max(map(len, self._columns)), 24), overflow="fold")
        table.add_column(overflow="fold")
        for row in self._cells:
            for column, cell in zip(self._columns, row, strict=True):
                table.add_row(f"{escape(column)}  ", escape(cell))
            table.add_row("", "")
        return table


_BETWEEN_CHARS = 1


def text_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None
) -> TextTable:
    return TextTable(columns, rows, title)


def success(message: str) -> None:
    console.print(f"[green]✓[/green] {escape(message)}", soft_wrap=True)


def report(result: Any, *messages: str, as_json: bool) -> None:
    """Print what was done: the result as JSON, or a line for each message."""
    if as_json:
        print_json(result)
        return
    for message in messages:
        success(message)


def write_file(path: Path, data: bytes) -> None:
    """Write the file atomically. Raises RtolapError if it cannot be written."""
    try:
        write_atomic(path, data)
    except OSError as error:
        raise RtolapError(f"{path} cannot be written", found=error.strerror or str(error)) from error


def warn(message: str) -> None:
    error_console.print(f"[yellow]![/yellow] {escape(message)}", soft_wrap=True)


@contextmanager
def errors() -> Iterator[None]:
    """Turn an RtolapError into its message on stderr and exit code 1; other errors are bugs and surface.

    An OSError of a file is neither: what a path that somebody has given can be wrong in has no end.
    """
    try:
        yield
    except RtolapError as error:
        _print_error(str(error))
        raise SystemExit(EXIT_ERROR) from None
    except OSError as error:
        if not isinstance(error.filename, str | bytes):
            raise
        _print_error(f"{os.fsdecode(error.filename)}: {error.strerror}")
        raise SystemExit(EXIT_ERROR) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def _print_error(message: str) -> None:
    error_console.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)


def end_now(status: int = 0) -> NoReturn:
    """End the process with `status`, without taking the interpreter down.

    Calls of the process or to it may still be open; everything that it stores is closed before. The
    interpreter's own end would look for cycles among all imports. Where these are frozen, two libraries then
    report their types as leaked, below what the command has printed.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            status = status or EXIT_ERROR  # the reader went away, as `head` does: it wants no message
        except (OSError, RtolapError) as error:
            status = status or EXIT_ERROR
            told = unwritten(error) if isinstance(error, OSError) else error
            with suppress(OSError):  # where it is stderr that is full
                os.write(2, f"error: {told}\n".encode())
    os._exit(status)
