"""`rtolap dump` and `rtolap verify`: fragments, staged parts and history, looked into and checked by byte."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rtolap.base.errors import Corrupted, NotFound
from rtolap.cli.output import JsonOption, console, print_json, print_table, success
from rtolap.cubes.format import inspect

app = typer.Typer(no_args_is_help=True, help="Fragments, staged parts and history.")

Place = Annotated[
    str, typer.Argument(help="A .fragment file, a folder of fragments or with a manifest, or the URI of one.")
]


@app.command()
def dump(
    place: Place,
    rows: Annotated[int, typer.Option(min=0, help="Number of first rows of a fragment to show.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the header or manifest, and the first rows of a fragment."""
    dumps = [
        {"kind": item.kind, "where": item.where} | inspect.dump(item, rows_max=rows)
        for item in inspect.find(place)
    ]
    if as_json:
        print_json(dumps)
        return
    for each in dumps:
        first_rows: list[dict[str, Any]] = each.pop("first_rows", [])
        print_table(("", str(each["where"])), list(each.items()))
        if first_rows:
            print_table(tuple(first_rows[0]), [tuple(row.values()) for row in first_rows])


@app.command()
def verify(place: Place, as_json: JsonOption = False) -> None:
    """Check every byte against checksums, lengths and counts. Exits with 1 for damage."""
    results: list[dict[str, Any]] = []
    for item in inspect.find(place):
        try:
            results.append({"where": item.where, "kind": item.kind, "ok": True, "rows": inspect.verify(item)})
        except (Corrupted, NotFound) as error:
            results.append({"where": item.where, "kind": item.kind, "ok": False, "error": str(error)})
    damaged = [result for result in results if not result["ok"]]
    if as_json:
        print_json(results)
    else:
        for result in damaged:
            console.print(f"[red]damaged[/red] {result['error']}", soft_wrap=True)
        success(f"{len(results) - len(damaged)} of {len(results)} whole")
    if damaged:
        raise typer.Exit(1)
