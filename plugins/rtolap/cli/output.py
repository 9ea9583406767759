"""Printing for people and for programs, and the exit code of errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol

import msgspec
import typer
from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rtolap.base.errors import RtolapError
from rtolap.base.files import write_atomic

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


class Message(Protocol):
    """A response of one of the protocols' clients."""

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


console = Console()
error_console = Console(stderr=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout. Messages, structs, dates, decimals, paths and sets are understood."""
    encoded = msgspec.json.encode(value, enc_hook=_encodable)
    sys.stdout.write(msgspec.json.format(encoded, indent=2).decode() + "\n")
    sys.stdout.flush()


def _encodable(value: object) -> object:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None, as_json: bool = False
) -> None:
    """A table on a terminal, where numbers stand right; into a pipe one line a row, tabs between its values
    and names in the first line; with `as_json` a list of objects with the columns' names as keys."""
    materialized = [tuple(row) for row in rows]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in materialized])
        return
    if not sys.stdout.isatty():
        for row in (columns, *materialized):
            sys.stdout.write("\t".join("" if value is None else _plain(value) for value in row) + "\n")
        sys.stdout.flush()
        return
    console.print(text_table(columns, materialized, title=title))


def _plain(value: Any) -> str:
    """On one line and without a tab, as MySQL's client writes them into a pipe."""
    text = str(value).replace("\\", "\\\\")
    return text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def text_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> Table:
    table = Table(
        title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=0
    )
    for index, column in enumerate(columns):
        values = [row[index] for row in rows if row[index] is not None]
        numeric = bool(values) and all(isinstance(value, int | float) for value in values)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in row))
    return table


def success(message: str) -> None:
    console.print(f"[green]✓[/green] {escape(message)}", highlight=False, soft_wrap=True)


def report(result: Message, message: str, *, as_json: bool) -> None:
    """Print what was done: the service's response as JSON, or one line."""
    if as_json:
        print_json(result)
    else:
        success(message)


def write_file(path: Path, data: bytes) -> None:
    """In one step. Raises RtolapError where the file cannot be written."""
    try:
        write_atomic(path, data)
    except OSError as error:
        raise RtolapError(f"{path} cannot be written", found=error.strerror or str(error)) from error


def warn(message: str) -> None:
    error_console.print(f"[yellow]![/yellow] {escape(message)}", highlight=False, soft_wrap=True)


@contextmanager
def errors() -> Iterator[None]:
    """Turn an RtolapError into its message on stderr and exit code 1; other errors are bugs and surface."""
    try:
        yield
    except RtolapError as error:
        error_console.print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(EXIT_ERROR) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


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
        except OSError as error:
            status = status or EXIT_ERROR
            os.write(2, f"error: the output cannot be written: {error.strerror}\n".encode())
    os._exit(status)
