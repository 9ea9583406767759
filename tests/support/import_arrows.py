"""A contract of import-linter: the arrows between rooms are just those that are drawn, none more, none less.

Option `arrows`: a line a room, `room -> room room …`; a room is a package or module, written without the root
package's name if that is `rtolap`. A module belongs to the longest room that its name begins with. An import
between rooms that no line allows breaks the contract, and so does an arrow that no import uses, or a module
that belongs to no room: a drawing that promises more than there is tells as little as one that hides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

Arrow = tuple[str, str]


def parse_arrows(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return {room: rooms that it may import}, from lines `a -> b c`. A room without `->` imports none."""
    arrows: dict[str, tuple[str, ...]] = {}
    for line in lines:
        room, _, imported = line.partition("->")
        if line.strip():
            arrows[room.strip()] = tuple(imported.split())
    return arrows


def room_of(module: str, rooms: Iterable[str]) -> str | None:
    """Return the longest room that `module` (a dotted name) belongs to; None if there is none."""
    name = module.removeprefix("rtolap.")
    fitting = [room for room in rooms if name == room or name.startswith(f"{room}.")]
    return max(fitting, key=len, default=None)


def imports_between(graph: ImportGraph, rooms: Mapping[str, object]) -> dict[Arrow, list[str]]:
    """Return {(room, imported room): the imports behind it, as `module -> module (l.N)`}."""
    found: dict[Arrow, list[str]] = {}
    for module in graph.modules:
        room = room_of(module, rooms)
        for imported in graph.find_modules_directly_imported_by(module):
            other = room_of(imported, rooms)
            if room is None or other is None or room == other:
                continue
            details = graph.get_import_details(importer=module, imported=imported)
            line = details[0]["line_number"] if details else "?"
            found.setdefault((room, other), []).append(f"{module} -> {imported} (l.{line})")
    return found


class ArrowsContract(Contract):
    """See the module. Options: `arrows`, and `outside`: modules without a room, as root packages are."""

    arrows = fields.ListField(subfield=fields.StringField())
    outside = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        drawn = parse_arrows(self.arrows)  # type: ignore[arg-type]
        outside: set[str] = self.outside or set()  # type: ignore[assignment]
        used = imports_between(graph, drawn)
        allowed = {(room, other) for room, others in drawn.items() for other in others}
        roomless = [
            module
            for module in graph.modules
            if module.startswith(("rtolap.", "dags.", "spark_jobs.", "benchmarks."))
            and module not in outside
            and room_of(module, drawn) is None
        ]
        metadata = {
            "undrawn": sorted((arrow, sorted(used[arrow])) for arrow in used.keys() - allowed),
            "unused": sorted(allowed - used.keys()),
            "roomless": sorted(roomless),
        }
        return ContractCheck(kept=not any(metadata.values()), metadata=metadata)

    def render_broken_contract(self, check: ContractCheck) -> None:
        for (room, other), imports in check.metadata["undrawn"]:
            output.print_error(f"{room} -> {other} is not drawn:")
            for text in imports:
                output.print_error(f"    {text}", bold=False)
        for room, other in check.metadata["unused"]:
            output.print_error(f"{room} -> {other} is drawn, but nothing imports so: take it out")
        for module in check.metadata["roomless"]:
            output.print_error(f"{module} belongs to no room")
