"""Levels and edges of an application, as text for Graphviz or as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rtolap.draw.figure import Format, load_matplotlib, new_figure, rendered
from rtolap.model.application import Application

_COLUMN_INCHES, _ROW_INCHES = 2.6, 1.1
_BOX_WIDTH, _BOX_HEIGHT = 0.78, 0.62  # of a column, of a row
_HOLDS, _PLAIN, _FILL = "#d55e00", "#444444", "#f4f6f8"


@dataclass(frozen=True, slots=True)
class Node:
    """A level with what is written into it, a line each. `holds`: the global low watermark waits for it."""

    name: str
    lines: tuple[str, ...] = ()
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    application: str
    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...]

    def columns(self) -> list[list[Node]]:
        """Return the nodes by their longest way from a source. Nodes are given after all their upstreams."""
        depth: dict[str, int] = {}
        for node in self.nodes:
            above = [depth[start] for start, end in self.edges if end == node.name]
            depth[node.name] = 1 + max(above, default=-1)
        columns: list[list[Node]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
        for node in self.nodes:
            columns[depth[node.name]].append(node)
        return columns


def topology(
    application: Application, lines: Mapping[str, Sequence[str]], holding: frozenset[str]
) -> Topology:
    """Draw levels and edges.

    Args:
        lines: level → what is written into it.
        holding: the levels that hold the global low watermark.
    """
    return Topology(
        application.name,
        tuple(Node(name, tuple(lines.get(name, ())), name in holding) for name in application.in_order()),
        tuple((edge[0], edge[1]) for edge in application.edges),
    )


def dot(topology: Topology) -> str:
    """Return the text for Graphviz: `dot -Tsvg`."""
    text = [f"digraph {_quoted(topology.application)} {{", "  rankdir=LR;", "  node [shape=box];"]
    for node in topology.nodes:
        label = "\\n".join(_escaped(line) for line in (node.name, *node.lines))
        colour = f', color="{_HOLDS}"' if node.holds else ""
        text.append(f'  {_quoted(node.name)} [label="{label}"{colour}];')
    text += [f"  {_quoted(start)} -> {_quoted(end)};" for start, end in topology.edges]
    return "\n".join([*text, "}", ""])


def draw_topology(topology: Topology, form: Format) -> bytes:
    """Draw a column per step from the sources, and edges as arrows.

    Raises DefinitionError without matplotlib.
    """
    title = f"Topology of {topology.application}"
    columns = topology.columns()
    rows = max(len(column) for column in columns)
    with new_figure(0.4 + _COLUMN_INCHES * len(columns), 0.6 + _ROW_INCHES * rows) as figure:
        patches = load_matplotlib("patches")
        place = figure.add_subplot()
        place.set_xlim(0, len(columns))
        place.set_ylim(rows, 0)
        place.set_axis_off()
        place.set_title(title, loc="left", fontweight="bold")
        boxes = {}
        for x, column in enumerate(columns):
            above = (rows - len(column)) / 2
            for y, node in enumerate(column):
                corner = (x + (1 - _BOX_WIDTH) / 2, above + y + (1 - _BOX_HEIGHT) / 2)
                colour = _HOLDS if node.holds else _PLAIN
                boxes[node.name] = patches.Rectangle(
                    corner,
                    _BOX_WIDTH,
                    _BOX_HEIGHT,
                    facecolor=_FILL,
                    edgecolor=colour,
                    linewidth=1.2,
                    zorder=3,
                )
                place.add_patch(boxes[node.name])
                text = "\n".join((node.name, *node.lines))
                place.text(x + 0.5, above + y + 0.5, text, ha="center", va="center", fontsize=7, zorder=4)
        for start, end in topology.edges:
            left, right = boxes[start], boxes[end]
            place.annotate(
                "",
                (right.get_x(), right.get_y() + _BOX_HEIGHT / 2),
                (left.get_x() + _BOX_WIDTH, left.get_y() + _BOX_HEIGHT / 2),
                arrowprops={"arrowstyle": "->", "color": _PLAIN},
            )
        return rendered(figure, form, title)


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
