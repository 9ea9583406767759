"""`rtolap sql`: a thin client of the running query service; nothing of the service is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, print_json, print_table, warn
from rtolap.wire.query_client import QueryAnswer, QueryClient

app = typer.Typer(no_args_is_help=True, help="SQL on the command line.")

_WORDS = [
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP BY",
        "HAVING",
        "ORDER BY",
        "LIMIT",
        "JOIN",
        "ON",
        "DISTINCT",
        "EXPLAIN",
    ),
    *("COUNT(*)", "SUM", "AVG", "MIN", "MAX", "COUNT(DISTINCT", "DATE_TRUNC('day',", "BETWEEN", "IN", "LIKE"),
]


@app.command()
def sql(
    execute: Annotated[str | None, typer.Option("-e", "--execute", help="Run this and end.")] = None,
    timeout_ms: Annotated[int, typer.Option(min=1, help="Time-out of one query.")] = 60_000,
    as_json: JsonOption = False,
) -> None:
    """Ask the running query service, once with -e or from a pipe, else interactively."""
    settings = Settings()
    with QueryClient(
        settings.query_url(), token=settings.token(), timeout_ms=timeout_ms, ca_file=settings.query_ca
    ) as client:
        if execute is None and sys.stdin.isatty():
            _interact(client, settings, as_json)
            return
        for statement in split(execute if execute is not None else sys.stdin.read()):
            _show(client.query(statement), as_json)


def split(text: str) -> list[str]:
    """Statements of a script: `;` outside of quotes parts them."""
    statements, start, quote = [], 0, ""
    for position, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter == ";":
            statements.append(text[start:position])
            start = position + 1
    statements.append(text[start:])
    return [statement.strip() for statement in statements if statement.strip()]


def _interact(client: QueryClient, settings: Settings, as_json: bool) -> None:
    words = list(_WORDS)
    try:
        names = client.query("SELECT DISTINCT table_name, column_name FROM information_schema.columns").rows
        words += sorted({str(name) for row in names for name in row})
    except RtolapError as error:
        warn(str(error))
    session: PromptSession[str] = PromptSession(
        history=_history(settings.data_dir), completer=WordCompleter(words, ignore_case=True)
    )
    pending = ""
    while True:
        try:
            pending += session.prompt("rtolap> " if not pending else "     -> ") + "\n"
        except KeyboardInterrupt:
            pending = ""
            continue
        except EOFError:
            return
        if pending.strip().lower().rstrip(";") in ("exit", "quit", "\\q"):
            return
        if not pending.strip():
            pending = ""
        if not pending.rstrip().endswith(";"):
            continue
        for statement in split(pending):
            try:
                _show(client.query(statement), as_json)
            except RtolapError as error:
                warn(str(error))
        pending = ""


def _history(folder: Path) -> History:
    return FileHistory(str(folder / "sql-history")) if folder.is_dir() else InMemoryHistory()


def _show(answer: QueryAnswer, as_json: bool) -> None:
    names = [column.name for column in answer.columns]
    if as_json:
        rows = [dict(zip(names, row, strict=True)) for row in answer.rows]
        print_json({"columns": answer.columns, "rows": rows, "positions": answer.positions})
    else:
        print_table(names, answer.rows)
