"""Loads: labelled transactions, exactly once, over replicas on storage nodes.

Nouns: a **transaction** is one load of rows, named by a **label** that is unique in its database as long as
it is kept; a partition's **version** is what a published transaction makes, +1 each; a **participant** is a
storage node, which prepares what it was sent, publishes it as a version, or drops it.

`states` is the life of a transaction, `messages` the texts that clients match, `labels` the rules of labels,
`quorum` those of majorities: all pure. `participants` is the seam towards the nodes, `memory_participants`
its twin in memory. `transactions` takes requests, `publishing` finishes what is committed, `upkeep` does what
falls due, and all a new master has to do.

Invariants: what is COMMITTED becomes VISIBLE, whatever dies, strictly in order per partition; what is not
COMMITTED is seen by nobody; a master without the lease changes nothing. No state is kept beside the ledger.
"""
