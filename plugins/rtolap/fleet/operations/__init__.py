"""Use cases of the fleet: what commands, DAGs and policies do with a cluster, written once.

`plans`: a plan is made of a snapshot and the registry, approved by its digest, held against the cluster as it
is now, and submitted to the mover. `drains`: the same for what empties a broker. `brokers`: the life of
brokers, as a look shows it, and operations on it. `rates`: the reader of brokers' rates, of the declared
sources. `cluster`: a cluster with all connections that its care takes, for whoever plans now and submits once
somebody has approved. `look`: brokers, disks and the plan at one moment. `slow_watch`: which brokers are
slow, from one look to the next.

Faces parse, call and print. None of them assembles these steps again.
"""
