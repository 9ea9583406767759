"""SQL over cubes: one statement in, one exact answer out.

Nouns: a **relation** is what SQL calls a table: a cube or a lookup; a **cube read** is what one statement
needs of one cube (dimensions, partial columns, a pushed filter, a range of event time); a **history plan**
names the segments' READY versions and the cuboid chosen in each; a **real-time plan** names one receiver a
replica set; an **outcome** is a stream of Arrow batches with the positions that it holds.

The way of a statement:

    parser ─▶ rules/ (an ordered tuple of functions) ─▶ planner ─▶ history + real time ─▶ merge ─▶ engine

`rules` turn SQL over events into SQL over partial aggregates: COUNT(*) becomes SUM(__rows), and so on, each
step exact. Everything above the aggregate (HAVING, ORDER BY, joins, windows) runs in the embedded engine.

Invariants
- An answer holds exactly the events below its `positions`, for every partition of every cube it read; a cube
  is fetched once a statement, however often it is named, so that all parts of one answer agree.
- A read of a cube that several statements share has begun after each of them came (`coalescing`).
- Never a silently partial answer: a replica set without an answer, a missing or corrupted file of
  history, a column that the cube did not keep are errors that name it.
- Positions never go backwards for one query service, whichever replica answers.
- Values never become SQL text: parameters are bound by the engine, filters travel as trees. Long lists of
  plain texts and numbers are written in quotes and read back by one pattern (`approval.bound_lists`).
- The engine has no file system, no network and a locked configuration.

`cluster` is what a service knows of its cluster; `sql` parses and rewrites, `approval` admits what the engine
may run, `macros` are MySQL's functions that it lacks, `engine_functions` those over columns, `functions` the
table of all; `cubes` and `stored` read, `history_cache` copies history to the disk, `spark` makes large reads
of it, `spills` is the disk for what statements hold beyond their memory, `query_log` keeps what was asked and
what it cost, `execution` carries one statement out, `shapes` plans once for statements that differ in texts
alone, `workers` are the processes in which statements run.

It never writes rows. `statements/` says what a statement is and carries it out, definitions of stored tables
among them, the same for every server: `mysql/` (MySQL protocol) and `http` (JSON, Arrow; DB-API over it).
`execution/` rewrites a statement for its relations, reads their rows and runs the engine over them.
"""
