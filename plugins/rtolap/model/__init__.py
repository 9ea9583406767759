"""Definitions hold what a data engineer declares, and the arithmetic that follows from it alone.

Nouns: a **table** is a Kafka topic with typed columns and an event time; a **cube** is a roll-up of a
table (dimensions, measures, segment window, policies); a **cuboid** is a subset of its dimensions; a
**segment** is one window of event time, `[start_ms, end_ms)`, in UTC.

`expressions` says how computed columns follow from others, `formats` how records are written, `stored`
declares stored tables, `merging` says which segments merge, `validation` lists every problem of a definition,
`evolution` says how a running cube changes.

Invariants: every object is frozen; nothing in here does I/O beyond reading a definition file, imports
pyarrow, or knows a server. Instants are int milliseconds since the epoch, named `_ms`.
"""
