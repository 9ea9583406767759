"""`rtolap tables` shows and changes stored tables, by way of a front end."""

from __future__ import annotations

from typing import Annotated

import typer

from rtolap.base.complete import complete
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, console, print_json, print_table, report, warn
from rtolap.cli.watching import repeatable
from rtolap.model.quantities import instant_text
from rtolap.model.stored.create_table_text import create_table_text
from rtolap.protocols.stored_tables.client import StoredTablesClient
from rtolap.protocols.stored_tables.messages import TableName

app = typer.Typer(no_args_is_help=True, help="Stored tables: rows that are loaded in transactions.")

NameArgument = Annotated[str, typer.Argument(help="DATABASE.TABLE")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def tables_client() -> StoredTablesClient:
    """Return the endpoints that the settings name."""
    settings = Settings()
    return StoredTablesClient(settings.stream_load_urls(), settings.token(), ca=settings.stream_load_ca)


@app.command("list")
@repeatable
def list_tables(as_json: JsonOption = False) -> None:
    """List stored tables with their model, columns and partitions."""
    with tables_client() as client:
        tables = client.tables(retry=True)
    print_table(
        ("table", "model", "columns", "partitions", "buckets"),
        [
            (
                table.qualified_name,
                table.definition.model,
                len(table.schema.columns),
                len(table.partitions),
                table.definition.buckets.count,
            )
            for table in tables
        ],
        as_json=as_json,
    )


@app.command()
def show(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show the statement that creates the table as it is now."""
    with tables_client() as client:
        table = client.table(_name(name))
    if as_json:
        print_json(complete(table))
    else:
        statement = create_table_text(table.definition, table.schema)
        console.print(statement, markup=False, soft_wrap=True)


@app.command()
@repeatable
def partitions(name: NameArgument, as_json: JsonOption = False) -> None:
    """List a table's partitions in the order of time, with their versions."""
    with tables_client() as client:
        ranges = client.partitions(_name(name))
    print_table(
        ("partition", "start", "end", "visible", "committed", "buckets", "replicas"),
        [
            (
                part.range.name,
                _instant(part.range.start_ms),
                _instant(part.range.end_ms),
                part.visible_version,
                part.committed_version,
                part.buckets,
                part.replicas,
            )
            for part in ranges
        ],
        as_json=as_json,
    )


@app.command()
@repeatable
def tablets(name: NameArgument, as_json: JsonOption = False) -> None:
    """List a table's replicas as their nodes report them: versions, files, bytes, compaction."""
    with tables_client() as client:
        found = client.tablets(_name(name))
    print_table(
        ("partition", "bucket", "node", "version", "rowsets", "files", "rows", "bytes", "pending_files",
         "compacting_since", "compacted", "problem"),
        [
            (
                each.partition,
                each.bucket,
                each.node,
                each.version,
                each.rowsets,
                each.files,
                each.rows,
                each.bytes,
                each.pending_files,
                None if each.compacting_since_ms is None else instant_text(each.compacting_since_ms),
                None if each.compacted_ms is None else instant_text(each.compacted_ms),
                each.problem,
            )
            for each in found.replicas
        ],
        as_json=as_json,
    )  # fmt: skip
    for node, reason in sorted(found.missing.items()):
        warn(f"replicas on node {node} are not known: {reason}")


@app.command()
def drop(name: NameArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Drop a table with all of its rows."""
    _confirm(f"Drop table {name} and all of its rows?", yes)
    with tables_client() as client:
        client.drop(_name(name))
    report({"dropped": name}, f"table {name} dropped", as_json=as_json)


@app.command()
def truncate(name: NameArgument, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Delete all rows of a table. Its columns stay."""
    _confirm(f"Drop all rows of table {name}?", yes)
    with tables_client() as client:
        client.truncate(_name(name))
    report({"truncated": name}, f"table {name} is empty", as_json=as_json)


def _name(text: str) -> TableName:
    db, dot, table = text.partition(".")
    if not db or not dot or not table or "." in table:
        raise DefinitionError("not the name of a stored table", expected="DATABASE.TABLE", found=repr(text))
    return TableName(db, table)


def _confirm(question: str, yes: bool) -> None:
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)


def _instant(ms: int) -> str | None:
    """Format an instant; None at the ends of time."""
    if abs(ms) >= 1 << 62:
        return None
    return instant_text(ms)
