"""The names that a statement takes from its session, and their replacement by values."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from sqlglot import exp

from rtolap.query.sql.dialect import label_of
from rtolap.query.sql.rules.zones import in_session_zone
from rtolap.query.sql.statement import UserValue

_FUNCTIONS = {
    **dict.fromkeys(("database", "schema", "currentschema", "currentdatabase"), "database"),
    **dict.fromkeys(("user", "currentuser", "sessionuser", "systemuser"), "user"),
    **dict.fromkeys(("version", "currentversion"), "version"),
    "connectionid": "connectionid",
    **dict.fromkeys(("lastinsertid", "foundrows", "rowcount"), "none"),
}
FUNCTION_NAMES = frozenset(_FUNCTIONS.values())


def session_name(node: exp.Expr) -> str | None:
    """Return the name of what the node is in a session: `@@variable`, `@name`, or one of FUNCTION_NAMES.

    None for a node that means the same in every session.
    """
    if isinstance(node, exp.SessionParameter):
        name = str(node.name).lower()
        return name if name.startswith("@") else f"@@{name}"
    if not isinstance(node, exp.Func):
        return None
    called = str(node.this if isinstance(node, exp.Anonymous) else node.key).lower().replace("_", "")
    return _FUNCTIONS.get(called)


def completed(tree: exp.Expr, given: Mapping[str, UserValue], zone: str | None) -> exp.Expr:
    """Return a copy of the tree with the session's values in the place of their names.

    Args:
        given: `session_name` → value.
        zone: time zone of the session's clock; None for UTC.
    """
    if zone is None and not given:
        return tree
    tree = tree.copy()
    for select in tree.find_all(exp.Select):
        select.set("expressions", [_labelled(projection) for projection in select.expressions])
    for node in list(tree.find_all(exp.SessionParameter, exp.Func)):
        name = session_name(node)
        if name is not None:
            node.replace(_literal(given[name]))
    if zone is not None:
        in_session_zone(tree, zone)
    return tree


def _labelled(projection: exp.Expr) -> exp.Expr:
    if isinstance(projection, exp.Alias) or not projection.find(exp.SessionParameter, exp.Func):
        return projection
    return exp.alias_(projection, label_of(projection), quoted=True)


def _literal(value: UserValue) -> exp.Expr:
    match value:
        case None:
            return exp.null()
        case str():
            return exp.Literal.string(value)
        case bytes():
            return exp.HexString(this=value.hex())
        case float():
            number = f"{abs(value)!r}"
            literal: exp.Expr = exp.Literal.number(number if "e" in number else f"{number}e0")
        case _:
            literal = exp.Literal.number(f"{abs(value):f}" if isinstance(value, Decimal) else str(abs(value)))
    return exp.paren(exp.Neg(this=literal)) if value < 0 else literal
