"""Who imports whom in the code of this project, and in what circles.

The parts of a room are its folders, contracted to a point each, and its own modules.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
from grimp import ImportGraph

Arrow = tuple[str, str]


@functools.cache
def import_graph(*roots: str) -> ImportGraph:
    """Return the graph, with other packages as one module each. It is made once per process, and must not be
    changed."""
    return grimp.build_graph(*roots, include_external_packages=True)


def rooms(graph: ImportGraph, root: str) -> list[str]:
    """Return every package at or below `root`, by its dotted name."""
    return sorted(module for module in {root, *graph.find_descendants(root)} if graph.find_children(module))


def imports_between_parts(graph: ImportGraph, room: str) -> dict[Arrow, list[str]]:
    """Return {(part, imported part): the imports behind it}. The page of the room, its `__init__`, is no
    part."""
    found: dict[Arrow, list[str]] = defaultdict(list)
    for module in graph.find_descendants(room):
        for imported in graph.find_modules_directly_imported_by(module):
            if imported.startswith(f"{room}."):
                part, other = (name.removeprefix(f"{room}.").partition(".")[0] for name in (module, imported))
                if part != other:
                    found[part, other].append(f"{module} -> {imported}")
    return found


def cycle(arrows: Iterable[Arrow]) -> tuple[str, ...]:
    """Return parts each of which imports the next and the last one the first; empty where no cycle is."""
    imported: dict[str, set[str]] = defaultdict(set)
    for part, other in arrows:
        imported[part].add(other)
    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return tuple(reversed(found[1:]))
    return ()


def described(cycle: tuple[str, ...], imports: Mapping[Arrow, list[str]]) -> str:
    """Return the cycle with an import behind each of its arrows, for a message."""
    arrows = zip(cycle, (*cycle[1:], *cycle[:1]), strict=True)
    return "; ".join(f"{part} -> {other} ({imports[part, other][0]})" for part, other in arrows)
