"""Columns in memory and bytes at rest: partial aggregates, fragments (local), staged parts and history.

FORMAT.md comes first. `schema` maps the model's types to Arrow, in *local* form (receivers) and *plain*
form (everywhere else). `aggregate` rolls events up and merges roll-ups, exactly, on `derive` (time),
`groups` (keys), `reduce` (sums, extremes) and `hll`, `hll_image`, `hash64`, `hash32` (distinct counts).
`filter`, `ranges`, `index` and `literals` answer predicates. `fragment`, `staged`, `history` and `manifest`
are the files, `object_store` the seam to local disk, S3 and HDFS through pyarrow.fs, and `inspect` looks at
all of them for people.

Invariants: a file is written once and exists only when its header or manifest, written last, does; every
byte is under a checksum; an aggregate of aggregates equals the aggregate of the events.
"""
