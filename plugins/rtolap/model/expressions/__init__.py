"""Expressions of computed columns: a tree of values of one event, read from SQL's spelling.

`grammar` reads a text, `nodes` is the tree, `types` says what comes out of it and refuses what could not be
exact. `events.computed` computes the tree over columns. Pure: no pyarrow and no sqlglot, as definitions are
read with it.
"""
