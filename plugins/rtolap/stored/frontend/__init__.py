"""Loads: labelled transactions, exactly once, over replicas on storage nodes.

Nouns: a **transaction** is one load of rows, named by a **label** that is unique in its database as long as
it is kept; a partition's **version** is what a published transaction makes, +1 each; a **participant** is a
storage node, which prepares what it was sent, publishes it as a version, or drops it.

`states` is the life of a transaction, `messages` the texts that clients match, `labels` the rules of labels,
`quorum` those of majorities: all pure. `participants` is the seam towards the nodes, `memory_participants`
its twin in memory. `transactions` takes requests (`preparation` asks the nodes first), `publishing` finishes
what is committed, `upkeep` does what falls due, and all a new master has to do.

A **door** is a process that takes loads over HTTP: `service` is the process, `assembly` puts it together,
`doors` says which of several is master, `duties` are its threads. A load goes `http_load` → `body_pipe` →
`reading` (`distribution`, `error_files`) → `load_writer` → `committing` (`visibility`); `loads` is the whole
of one, `group_commit` of several small ones.

Invariants: what is COMMITTED becomes VISIBLE, whatever dies, strictly in order per partition; what is not
COMMITTED is seen by nobody; a master without the lease changes nothing. No state is kept beside the ledger.
"""
