"""Arithmetic on Arrow columns: a whole column at a time, exact, the same for both products.

`schema` maps the model's types to Arrow, in *local* form (receivers) and *plain* form (everywhere else).
`groups` numbers rows by their keys, `reduce` sums and takes extremes by those numbers, `grouped` gives both
to `aggregates`, `hll`, `hll_image`,
`hll_groups`, `sketches` and `murmur3` count distinct values, `filter` and `literals` answer predicates. A
result depends on values alone, never on files, clocks or services.
"""
