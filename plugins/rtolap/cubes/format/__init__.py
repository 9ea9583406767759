"""A cube's bytes at rest: partial aggregates, fragments (local), staged parts and history.

FORMAT.md comes first. `aggregate` rolls events up and merges roll-ups, exactly, on the arithmetic of
`rtolap.columnar`. `index` says what a predicate need not read. `fragment`, `staged`, `history` and `manifest`
are the files, `build_inputs` and `build_batch` what a build does with them beside Spark, `build_pieces` what
the tasks of a large one do, on `blocks` of columns, and `inspect` looks at all of them for people.

Invariants: a file is written once and exists only when its header or manifest, written last, does; every
byte is under a checksum; an aggregate of aggregates equals the aggregate of the events.
"""
