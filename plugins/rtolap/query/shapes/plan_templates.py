"""Plans of statements that differ only in the texts that they compare columns with.

A dashboard asks the same statement with another country each time, and its text is new each time. Parsing and
planning it again takes as long as answering it. The plan of such a statement is made out of the plan of
another one of its shape (see `statement_shape`), where that is proven to say the same:

1. A statement of a known shape is planned as always, and a second time with a marker in the place of each
   literal, once for each shape and catalogue.
2. The second plan is a template if each marker is found in it, as a value of a comparison or list of a
   declared dimension of type string, and nowhere else: neither in the engine's SQL nor in a name; and if the
   plan with the literals in the place of the markers is the first plan, in all parts.

Rules read such a literal nowhere but there. A column of another type, a moment or a function makes other
plans of other literals; then a marker is missing or the plans differ, and the shape has no template.

One text may have a plan of its own that neither of the two plans shows: a text that a computed column or a
measure is declared with. A template is never filled with it (see `declared_texts`).
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from rtolap.model.predicate import And, Compare, In, Not, Or, Predicate, Scalar
from rtolap.query.plan import CubeRead, Planned, Rewritten
from rtolap.query.shapes.declared_texts import declared_texts, folded
from rtolap.query.workers.plans import plan_of

MARKER_CHARACTERS = 20


@dataclass(frozen=True)
class PlanTemplate:
    """The plan of all statements of one shape.

    Attributes:
        rewritten: the plan, with markers in the place of literals.
        markers: in the order of the literals.
        declared: the texts that it is not filled with, see `declared_texts`.
    """

    rewritten: Rewritten
    markers: tuple[str, ...]
    declared: frozenset[str] = frozenset()

    def filled(self, literals: Sequence[str]) -> Rewritten | None:
        """Return the plan of the statement with these literals; None where it has to be planned."""
        if self.declared and any(folded(literal) in self.declared for literal in literals):
            return None
        by_marker = dict(zip(self.markers, literals, strict=True))
        reads = tuple(replace(read, filter=_filled(read.filter, by_marker)) for read in self.rewritten.reads)
        return replace(self.rewritten, reads=reads)


def template_of(
    literals: Sequence[str], planned: Planned, plan: Callable[[Sequence[str]], Planned]
) -> PlanTemplate | None:
    """Return the template of a statement's shape; None if its plans depend on the literals in another way.

    Args:
        literals: those of the statement.
        planned: the plan of the statement.
        plan: plans the statement with other literals. What it raises is raised.
    """
    if planned.varies or not _has_only_cubes(planned.rewritten):
        return None
    markers = _markers(len(literals))
    marked = plan(markers)
    if marked.varies or not _has_only_cubes(marked.rewritten):
        return None
    places = [place for read in marked.rewritten.reads for place in _places(read)]
    if any(marker not in places for marker in markers) or _mentioned(marked.rewritten, markers):
        return None
    template = PlanTemplate(marked.rewritten, markers)
    if template.filled(literals) != planned.rewritten:
        return None
    return replace(template, declared=declared_texts(read.schema for read in marked.rewritten.reads))


def _markers(count: int) -> tuple[str, ...]:
    """Return texts that no statement has. Capitals and small letters, so that a rule that changes texts
    shows."""
    rng = random.SystemRandom()
    letters = string.ascii_letters + string.digits
    return tuple(f"Zq{place}x" + "".join(rng.choices(letters, k=MARKER_CHARACTERS)) for place in range(count))


def _has_only_cubes(rewritten: Rewritten) -> bool:
    return not (rewritten.tables or rewritten.sets or rewritten.latest or rewritten.information)


def _places(read: CubeRead) -> list[Scalar]:
    """Return the values that a read compares declared dimensions of type string with."""
    cube = read.schema.cube
    texts = {name for name in cube.dimensions if read.schema.dimension_type(name).kind == "string"}
    found: list[Scalar] = []
    waiting = [] if read.filter is None else [read.filter]
    while waiting:
        match waiting.pop():
            case And(terms=terms) | Or(terms=terms):
                waiting += terms
            case Not(term=term):
                waiting.append(term)
            case Compare(column=column, value=value) if column in texts:
                found.append(value)
            case In(column=column, values=values) if column in texts:
                found += values
    return found


def _mentioned(rewritten: Rewritten, markers: Sequence[str]) -> bool:
    """Tell whether a marker, in whatever capitals, is anywhere but in the values that may be filled."""
    bare = dict.fromkeys(markers, "")
    reads = tuple(replace(read, filter=_filled(read.filter, bare)) for read in rewritten.reads)
    rest = msgspec.json.encode(plan_of(replace(rewritten, reads=reads))).decode().lower()
    return any(marker.lower() in rest for marker in markers)


def _filled(predicate: Predicate | None, by_marker: Mapping[str, str]) -> Predicate | None:
    """Return the predicate with literals in the place of markers; the same object where it has none."""
    return None if predicate is None else _with_literals(predicate, by_marker)


def _with_literals(predicate: Predicate, by_marker: Mapping[str, str]) -> Predicate:
    match predicate:
        case And(terms=terms):
            return And(tuple(_with_literals(term, by_marker) for term in terms))
        case Or(terms=terms):
            return Or(tuple(_with_literals(term, by_marker) for term in terms))
        case Not(term=term):
            return Not(_with_literals(term, by_marker))
        case Compare(value=str(value)) if value in by_marker:
            return Compare(predicate.column, predicate.op, by_marker[value])
        case In(values=values):
            filled = tuple(
                by_marker.get(value, value) if isinstance(value, str) else value for value in values
            )
            return In(predicate.column, filled, predicate.negated)
        case _:
            return predicate
