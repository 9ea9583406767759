"""A storage node: tablets on its disk, behind one Flight endpoint with the cluster's token.

Nouns: a **slot** is the place of one tablet on this node, of whichever table has its name now; a **load** is
one stream of rows of a transaction; a **generation** is one making of a tablet's folder: a copy from another
replica is a new one.

`folder` is the data folder and who it belongs to, `tablet_replicas` the tablets, `loads` what comes in,
`transaction_participant` the requests of a transaction's master, `catching_up` how missed versions come,
`compactor` the background work, `node` all of it as `protocols.storage.client.StorageNode` has it; `flight`
faces outwards, `process` puts them together.

Invariants: what was answered as prepared is there until it is published or aborted; a stream that did not end
as announced leaves nothing; a tablet of one table is never taken for another's of the same name; memory and
threads are bounded, whatever comes.
"""
