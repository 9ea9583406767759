"""Statements run in worker processes that the operating system bounds; the service calls them over sockets.

    service process                                        worker processes
    ───────────────                                        ────────────────
    pool ── session ── worker ═══ data: requests ═══════▶  process (engine: the database)
      │                       ◀══ answers, Arrow batches
      │                       ═══ control: interrupts ══▶  a thread of its own
    watch: what all take together
    starter ═══ "one more" ═══▶ fork_server: has imported everything, and forks

A worker serves one statement at a time and is used again. One that was in any doubt (killed, out of memory,
an error of the engine's own) is replaced. What comes from a worker is data, never objects: msgpack and Arrow,
bounded in size and validated: `messages` frames them, `packing` holds values of statements.
"""
