"""The loader brings rows of a Kafka topic into a table, through Stream Load, each exactly once.

Nouns. A *batch* is what lies in `[start, end)` of all partitions of the topic; its *record* in the ledger
ties that to a *label*, under which a server takes rows at most once. To *settle* a batch is to bring its
rows into the table and to note so. A *sink* is the server, ours or Doris'.

Roles of one process, each a thread: *consume* seals batches and records them, *send* settles them, *commit*
moves the longest row of settled ones on and gives labels back, *keep* renews the lease, looks for new columns
and follows what is wanted of the job, *partitions*, where the definition asks for it, makes partitions of the
table ahead of time.

Invariants. 1. A record is durable before its first request, and says so before each (`mark_sent`). 2. One
label, one content: a range that reads otherwise than before is never sent. 3. No request follows another of
the same label before the sink has said what became of that. 4. Every write is fenced by the job's lease.
5. Positions move only from one record's end to the next one's start.

`records` reads rows of a batch, `sinks` sends them to a server, ours or one of Doris. `operations` are the
use cases of commands: declare, start, settle, reset. `assembly` makes the parts of a process.

`letters` lists what was refused, loads it after all, each record once, or gives it up.

`shares` has several processes of one job own parts of its partitions; all of the above holds for each part.

It never skips an offset, never makes a second label for a range, never takes silence for an answer.
"""
