"""The mover: carries out a plan on a running cluster, and leaves nothing behind.

One mover at a time works at a cluster, by lease; it keeps what it is about to do in ZooKeeper before it does
it, and looks at the brokers before it believes what it kept. So a mover that is killed at any point is
followed by one that goes on, and whatever it has set, it removes.

`states` are the lives of a move and of a plan; `records` what is kept of them, `kept` where; `planned` what a
plan asks for; `look` what brokers say of it; `advance` the next steps, a pure function of those; `window`
which moves may begin, `produce_latency` how many by what writes take; `throttles` what binds them; `requests`
what people ask for, signed; `mover` does it all; `status` tells people how far it is.

It never deletes a topic, never lowers a replication factor, and cancels only what it began itself.
"""
