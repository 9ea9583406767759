"""Names of the functions that SQL may call, as docs/sql.md lists them, and the error for any other."""

from __future__ import annotations

import difflib

from rtolap.aggregates.sketch_bytes import SKETCH_BYTES
from rtolap.base.errors import UnknownFunction, UnsupportedSql
from rtolap.query.functions import table as function_table
from rtolap.query.functions.table import SqlFunction


def _names(rows: tuple[SqlFunction, ...]) -> tuple[str, ...]:
    return tuple(row.name for row in rows)


TEXT_FUNCTIONS = _names(function_table.TEXTS)
NUMBER_FUNCTIONS = _names(function_table.NUMBERS)
TIME_FUNCTIONS = _names(function_table.TIMES)
CHOICES = _names(function_table.CHOICES)
AGGREGATES = _names(function_table.AGGREGATES)
WINDOW_FUNCTIONS = _names(function_table.WINDOWS)
SESSION_FUNCTIONS = _names(function_table.SESSION)
SKETCH_FUNCTIONS = _names(function_table.SKETCHES)
FUNCTIONS = (
    *TEXT_FUNCTIONS,
    *NUMBER_FUNCTIONS,
    *TIME_FUNCTIONS,
    *CHOICES,
    *AGGREGATES,
    *WINDOW_FUNCTIONS,
)


# Functions of other databases that people look for, and what to write instead.
_INSTEAD = {
    **dict.fromkeys(
        ("median", "percentile_cont", "percentile_disc", "quantile", "quantile_cont", "quantile_disc"),
        "exact quantiles need single events; declare an approx_percentile measure and ask for "
        "APPROX_PERCENTILE(x, 0.5)",
    ),
}
# Functions over measures of cubes alone: what they are there, and what to write over rows.
_OF_CUBES = {
    **dict.fromkeys(("first", "last"), ("by event time", "over rows write FIRST_VALUE(x) OVER (ORDER BY …)")),
    **dict.fromkeys(
        (each.title.lower() for each in SKETCH_BYTES),
        ("or of one that a stored table has", "ask for it inside of the SELECT that reads the cube"),
    ),
    "approx_top_k": (
        "with bounds",
        "over rows write SELECT x, COUNT(*) n … GROUP BY x ORDER BY n DESC LIMIT 10",
    ),
}


def unknown_function(name: str) -> UnknownFunction | UnsupportedSql:
    """Return the error for a function that a statement may not call, or not where it stands."""
    if (of_cubes := _OF_CUBES.get(name.lower())) is not None:
        how, over_rows = of_cubes
        expected = f"{name.upper()} of a measure of a cube, {how}"
        return UnsupportedSql(f"unsupported SQL: {name} of rows", expected=expected, action=over_rows)
    if (instead := _INSTEAD.get(name.lower())) is not None:
        return UnknownFunction(f"{name} is not available here", action=instead)
    near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1)
    return UnknownFunction(
        f"unknown function {name}",
        expected=f"perhaps {near[0].upper()}" if near else "one of the functions of docs/sql.md",
        action="see the list of functions in docs/sql.md",
    )
