"""Loads are labelled transactions, exactly once, over replicas on storage nodes.

Nouns: a **transaction** is one load of rows, named by a **label** that is unique in its database as long
as it is kept; a partition's **version** is what a published transaction makes, +1 each; a **participant**
is a storage node, which prepares what it was sent, publishes it as a version, or drops it.

`catalogue` makes, changes and drops tables, `http` has the routes. In `transactions`, `states` is the
life of a transaction, `labels` the rules of labels: both pure. `participants` is the seam towards the
nodes. `requests` begins, commits and aborts (`preparation` prepares the nodes first), `publishing`
finishes what is committed; `upkeep` does what falls due, and all that a new master has to do.

A **front end** is a process that takes loads over HTTP: `process` is the process, `assembly` puts it
together, `election` says which of several is master, `upkeep` has its threads. Bodies are taken by
`stored.stream_load`; `decisions` asks the master for it, `http.decisions` answers there.

Invariants: what is COMMITTED becomes VISIBLE, whatever dies, strictly in order per partition; what is not
COMMITTED is seen by nobody; a master without the lease changes nothing. No state is kept beside the
ledger.
"""
