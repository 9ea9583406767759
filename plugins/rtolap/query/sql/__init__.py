"""SQL: MySQL's grammar parsed, typed and rewritten into what runs over partial aggregates.

`parser` and `dialect` read a text, `statement` is what comes of it, `rules` rewrite it in their order,
`planner` says what each cube has to give; `filters`, `folding`, `pruning` and `timeline` decide what need not
be read.
"""
