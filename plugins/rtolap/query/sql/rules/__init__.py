"""SQL over events → SQL over partial aggregates: an ordered tuple of small functions.

`dates` has the calendar and the zones, `sets` the values of other relations.

Each rule takes the tree and the context and gives the tree back; each is exact on its own:

| rule | does |
|---|---|
| `names` | spells tables and columns as they are defined, refuses what is unknown, drops zones and locks |
| `computed` | puts computed columns and filtered measures in the place of their expressions |
| `functions` | lets functions that the engine knows by the same name count as MySQL's do |
| `aliases` | decides between aliases and columns in GROUP BY and HAVING as MySQL does |
| `stars` | writes out the stars of roll-up rows |
| `qualify` | gives every column its table, expands other stars, aliases and positions |
| `groupings` | refuses GROUPING of what is no key |
| `stored_sketches` | lets functions over the sketches of stored tables count them |
| `roll_up` | turns an outermost SELECT without aggregates into roll-up rows; else refuses single events |
| `event_time` | puts the coarsest sufficient derived dimension in the place of the event time |
| `aggregates` | replaces aggregates over events by aggregates over partials |
| `operators` | lets operators, comparisons and casts answer as MySQL's do, by the types of their operands |
| `latest` | notes where the latest groups are answer enough |
| `pushdown` | takes from WHERE what receivers and history can filter, and notes what each cube has to give |
| `stored_tables` | notes what each stored table has to give, and what its nodes may filter |
| `value_sets` | notes which values of other relations a cube's rows need to have |
| `plain_merge` | notes where the merged partials of one cube are the answer already |
| `cut_texts` | notes how to tell whether joined texts are cut |
"""

from __future__ import annotations

import logging

from sqlglot import exp
from sqlglot.errors import SqlglotError

from rtolap.base.errors import UnsupportedSql
from rtolap.query.plan import Rewritten
from rtolap.query.sql.dialect import engine_sql
from rtolap.query.sql.parser import PARSERS_OWN, too_deep
from rtolap.query.sql.rules.aggregates import aggregates
from rtolap.query.sql.rules.aliases import aliases
from rtolap.query.sql.rules.computed.columns import computed
from rtolap.query.sql.rules.context import Context, RewriteRule
from rtolap.query.sql.rules.cut_texts import cut_texts
from rtolap.query.sql.rules.event_time import event_time
from rtolap.query.sql.rules.functions import functions
from rtolap.query.sql.rules.groupings import groupings
from rtolap.query.sql.rules.names import names, qualify
from rtolap.query.sql.rules.operators.rewrites import operators
from rtolap.query.sql.rules.plain_merge import plain_merge
from rtolap.query.sql.rules.pushdown import pushdown
from rtolap.query.sql.rules.roll_up import latest, roll_up, stars
from rtolap.query.sql.rules.sets.value_sets import value_sets
from rtolap.query.sql.rules.stored.tables import stored_sketches, stored_tables

# Of a SELECT of literals. A function may give something else each time, or much out of little.
_CONSTANT = (exp.Select, exp.Alias, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren)

log = logging.getLogger(__name__)

# Rules that leave the tree as it is, or say where they change it.
_THAT_SAY = (stars, groupings, roll_up, event_time, aggregates, latest, value_sets, plain_merge, cut_texts)
RULES: tuple[RewriteRule, ...] = (
    names,
    computed,
    functions,
    aliases,
    stars,
    qualify,
    groupings,
    stored_sketches,
    roll_up,
    event_time,
    aggregates,
    operators,
    latest,
    pushdown,
    stored_tables,
    value_sets,
    plain_merge,
    cut_texts,
)


def rewrite(tree: exp.Expr, context: Context) -> Rewritten:
    """Rewrite a statement, without changing `tree`. Raises QueryError naming what a cube cannot answer."""
    try:
        return _rewrite(tree, context)
    except RecursionError as error:
        raise too_deep() from error
    except (*PARSERS_OWN, SqlglotError) as error:  # of a tree that misses what its kind of node always has
        log.warning("a statement could not be rewritten", exc_info=True)
        raise UnsupportedSql("unsupported SQL: the statement cannot be planned") from error


def _rewrite(tree: exp.Expr, context: Context) -> Rewritten:
    rewritten = tree.copy()
    for rule in RULES:
        context.check()
        rewritten = rule(rewritten, context)
        if rule not in _THAT_SAY:
            context.tree_changed()
    is_constant = all(isinstance(node, _CONSTANT) for node in rewritten.walk())
    parameters = dict.fromkeys(str(node.name) for node in rewritten.find_all(exp.Parameter))
    return Rewritten(
        sql=engine_sql(rewritten, copy=False),
        reads=context.reads,
        lookups=tuple(sorted(context.lookups)),
        information=tuple(sorted(context.information)),
        parameters=tuple(parameters),
        latest=context.latest,
        tables=context.tables,
        warnings=tuple(dict.fromkeys(context.warnings)),
        merge=context.merge,
        sets=context.sets,
        cuts=tuple(context.cuts),
        is_constant=is_constant,
    )


__all__ = ["RULES", "Context", "rewrite"]
