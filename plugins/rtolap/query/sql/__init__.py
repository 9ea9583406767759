"""SQL in MySQL's grammar is parsed, typed and rewritten into SQL that runs over partial aggregates.

`parser` and `dialect` read a text, `statement` is what comes of it, `rules` rewrite it in their order,
`planner` says what each cube has to give; `filters`, `folding`, `pruning` and `timeline` decide what need not
be read.
"""
