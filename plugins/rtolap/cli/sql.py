"""`rtolap sql` is a thin client of the running query service; it loads nothing of the service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from rtolap.aggregates.registry import AGGREGATES
from rtolap.aggregates.sketch_bytes import SKETCH_BYTES
from rtolap.base.errors import RtolapError, SqlSyntaxError
from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, console, print_json, print_table, warn
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.query.messages import QueryAnswer
from rtolap.query.sql.dialect import RtolapSql

_ENDS = ("exit", "quit", "\\q")

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
    *("COUNT(*)", "COUNT(DISTINCT", *(each.title for each in AGGREGATES.values() if not each.in_count)),
    *(each.title for each in SKETCH_BYTES),
    *("DATE_TRUNC('day',", "BETWEEN", "IN", "LIKE"),
]


@app.command()
def sql(
    execute: Annotated[
        str | None, typer.Option("-e", "--execute", help="Run this statement and exit.")
    ] = None,
    timeout_ms: Annotated[int, typer.Option(min=1, help="Time-out of a query.")] = 60_000,
    engine: Annotated[
        str | None,
        typer.Option(help="What reads history: auto, local or spark. Default: the service chooses."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run statements at the query service: one with -e, those of a pipe, or interactively."""
    settings = Settings()
    with QueryClient(
        settings.query_url(),
        token=settings.token(),
        timeout_ms=timeout_ms,
        engine=engine,
        ca_file=settings.query_ca,
    ) as client:
        if execute is None and sys.stdin.isatty():
            _interact(client, settings, as_json)
            return
        script = read_script(execute if execute is not None else sys.stdin.read())
        if script.unfinished is not None:
            raise SqlSyntaxError("bad SQL: a quote or a comment is not closed", found=script.unfinished[:80])
        for statement in script.statements:
            _show(client.query(statement), as_json)


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
            line = session.prompt("rtolap> " if not pending else "     -> ")
        except KeyboardInterrupt:
            pending = ""
            continue
        except EOFError:
            return
        if not pending and line.strip().lower().rstrip("; ") in _ENDS:
            return
        pending += line + "\n"
        script = read_script(pending)
        if not script.statements and script.is_complete:
            pending = ""
        elif script.is_complete:
            _run_all(client, script.statements, as_json)
            pending = ""


def _run_all(client: QueryClient, statements: Sequence[str], as_json: bool) -> None:
    """Run statements up to the first one that fails or is interrupted. The session goes on."""
    for statement in statements:
        try:
            _show(client.query(statement), as_json)
        except RtolapError as error:
            warn(str(error))
            return
        except KeyboardInterrupt:  # the call is closed, and with it the service ends the query
            warn("the query was interrupted")
            return


def _history(folder: Path) -> History:
    return FileHistory(str(folder / "sql-history")) if folder.is_dir() else InMemoryHistory()


def _show(answer: QueryAnswer, as_json: bool) -> None:
    names = [column.name for column in answer.columns]
    if as_json:
        rows = [dict(zip(names, row, strict=True)) for row in answer.rows]
        print_json(
            {
                "columns": answer.columns,
                "rows": rows,
                "positions": answer.positions,
                "warnings": answer.warnings,
            }
        )
    elif names:
        print_table(names, answer.rows)
    elif sys.stdout.isatty():
        console.print("ok")
    for warning in answer.warnings:
        warn(warning.message)


@dataclass(frozen=True)
class Script:
    """`is_complete`: the last one is ended by `;`. `unfinished`: the text, if a quote or comment is open."""

    statements: tuple[str, ...]
    is_complete: bool
    unfinished: str | None = None


def read_script(text: str) -> Script:
    """Read the statements of a script. Statements keep their comments; a comment alone is no statement."""
    try:
        tokens = RtolapSql().tokenize(text)
    except TokenError:
        return Script((), False, text.strip())
    statements, start, has_words = [], 0, False
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            has_words = True
            continue
        if has_words:
            statements.append(text[start : token.start].strip())
        start, has_words = token.end + 1, False
    if has_words:
        statements.append(text[start:].strip())
    return Script(tuple(statements), not has_words)
