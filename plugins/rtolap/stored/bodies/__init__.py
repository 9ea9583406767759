"""Bodies of loads: bytes that a client sends → typed Arrow rows of a stored table, and the rows refused.

`options` reads the headers. `decode` is the whole: `compression` unpacks, `csv`, `json`, `orc` and `files`
cut the bytes into source columns, `target` (on `plan`, `clauses`, `expressions`, `casting`) makes the table's
columns of them, `batches` is what comes out.

Invariants: no service and no socket; memory is bounded by settings, whatever the body holds; a row is loaded,
refused with a reason, or unselected, never lost and never changed silently; a body that cannot be read to its
end raises.
"""
