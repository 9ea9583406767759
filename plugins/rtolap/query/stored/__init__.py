"""Stored tables in SQL: plain relations, read whole rows of one version from storage nodes.

`source` is the seam towards frontends and nodes, `reader` takes one read view for all tables of a statement
and reads them. `ddl` turns CREATE, ALTER, DROP and TRUNCATE TABLE into changes, which `definitions` carries
out.

Invariants: all stored tables of one statement are read as of one moment; a filter that nodes apply is applied
again by the engine, so that pushing one down never decides what an answer holds.
"""
