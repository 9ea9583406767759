"""`rtolap watermark topology` shows levels and edges as a tree, for Graphviz, or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.tree import Tree

from rtolap.base.decoding import convert
from rtolap.cli.coordinator_access import coordinator_client
from rtolap.cli.output import JsonOption, console, print_json, success, write_file
from rtolap.cli.watermark.words import Name, at, span
from rtolap.draw import topology as drawing
from rtolap.draw.figure import picture_format
from rtolap.model.application import Application
from rtolap.protocols.watermark.messages import ApplicationWatermarks

_GRAPHVIZ = ".dot"


def topology(
    application: Name,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write: .dot (Graphviz), .svg or .png.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the levels from the sources down, each with its output and its number of units."""
    if out is not None and out.suffix.lower() != _GRAPHVIZ:
        picture_format(out)
    with coordinator_client() as client:
        info, marks = client.application(application), client.application_watermarks(application)
        units = client.application_units(application, limit=1).counts
    declared = convert(info.definition, Application)
    if out is not None:
        _write(out, declared, marks, units)
    if as_json:
        print_json(_document(declared, marks, units))
    elif out is not None:
        success(f"{out}: {len(declared.levels)} levels")
    else:
        tree = Tree(f"[bold]{escape(application)}[/bold]  global {at(marks.global_ms) or 'unknown'}")
        for source in declared.sources:
            _branch(tree, declared, marks, units, source.name)
        console.print(tree)


def _document(
    declared: Application, marks: ApplicationWatermarks, units: dict[str, int]
) -> dict[str, object]:
    holding = _holding(declared, marks)
    levels = {
        name: {
            "role": declared.role(name),
            "rule": _rule(declared, name),
            "upstreams": declared.upstreams(name),
            "input_ms": marks.levels[name].input_ms if name in marks.levels else None,
            "output_ms": _output_ms(marks, name),
            "units": units.get(name, 0),
            "holds": name in holding,
        }
        for name in declared.in_order()
    }
    return {"application": declared.name, "global_ms": marks.global_ms, "levels": levels}


def _branch(
    tree: Tree, declared: Application, marks: ApplicationWatermarks, units: dict[str, int], name: str
) -> None:
    rule = _rule(declared, name)
    note = f" ({rule})" if rule else ""
    number = f"  {units[name]} units" if units.get(name) else ""
    branch = tree.add(f"{escape(name)}{note}  {at(_output_ms(marks, name)) or 'unknown'}{number}")
    for edge in declared.edges:
        if edge[0] == name:
            _branch(branch, declared, marks, units, edge[1])


def _write(out: Path, declared: Application, marks: ApplicationWatermarks, units: dict[str, int]) -> None:
    lines = {}
    for name in declared.in_order():
        output_ms = _output_ms(marks, name)
        behind = "watermark unknown" if output_ms is None else f"{span(marks.now_ms - output_ms)} behind"
        number = f"{units[name]} units" if units.get(name) else ""
        kind = " ".join(filter(None, (_rule(declared, name), declared.role(name))))
        lines[name] = [line for line in (kind, behind, number) if line]
    picture = drawing.topology(declared, lines, _holding(declared, marks))
    if out.suffix.lower() == _GRAPHVIZ:
        write_file(out, drawing.dot(picture).encode())
    else:
        write_file(out, drawing.draw_topology(picture, picture_format(out)))


def _holding(declared: Application, marks: ApplicationWatermarks) -> frozenset[str]:
    """Return the levels that the global low watermark stands at, the topmost of them."""
    at_it = {name for name in declared.in_order() if _output_ms(marks, name) == marks.global_ms}
    return frozenset(name for name in at_it if not at_it.intersection(declared.upstreams(name)))


def _rule(declared: Application, name: str) -> str | None:
    source = declared.source(name)
    return None if source is None else source.rule.kind


def _output_ms(marks: ApplicationWatermarks, name: str) -> int | None:
    mark = marks.levels.get(name)
    return None if mark is None else mark.output_ms
