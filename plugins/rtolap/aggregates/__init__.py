"""Aggregate functions: one module says all that the house knows of one function.

Nouns: an **aggregate** is a function that a cube declares as a measure and that SQL asks for. An
**accumulator** is one value that it keeps for each group of events: how it begins and how two merge. A
**partial** is the physical column of an accumulator in one cube. AVG is one aggregate with two accumulators.

`registry` names the functions; every other room asks the registry and never compares names. `function` and
`accumulator` are the interfaces. Arithmetic on columns, by group, is reached through `GroupedColumn`, which
`columnar.grouped` implements; SQL for the embedded engine and for Spark is text.

Invariants: merging is associative and commutative and passes over nulls, so rows that stay apart are exact
too. A value that its type cannot hold is Refused, never wrapped. Nothing in here imports pyarrow, numpy,
sqlglot or pyspark: DAGs read definitions with it.
"""
