"""Arithmetic on Arrow columns: a whole column at a time, exact, the same for both products.

`schema` maps the model's types to Arrow, in *local* form (receivers) and *plain* form (everywhere else).
`reduce` sums and takes extremes by the number of each row's group, and `grouped` gives that to `aggregates`.
`sum_bounds` proves beforehand that sums fit their type.
`hll`, `hll_image`, `hll_groups`, `sketches` and `murmur3` count distinct values.
`given` checks sketches that events bring along. `filter` and `literals`
answer predicates. `chunks` joins the pieces of a column. A result depends on values alone, never on files,
clocks or services. Groups are made in `scan`.
"""
