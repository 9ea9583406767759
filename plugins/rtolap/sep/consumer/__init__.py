"""The consumer opens ports to which region servers ship WAL edits, as to the region servers of another
cluster.

`server` listens and drains; a `connection` reads `frames` within the bounds of `limits`, into memory of the
`frame_budget`; `calls` decodes a call, holds its events against `log_bounds`, hands them to delivery and
answers, by an exception of HBase where it failed. `allowed_addresses` says who may connect. `metrics` counts.

`registration` makes the ports known in ZooKeeper, and answers what HBase 3 asks of a master. `process` stands
for election and serves while it leads, with what `assembly` puts together.

Bytes that are no frames close their connection; a frame that is no call of ours is answered. In both cases
the source sends its edits again: nothing is acknowledged before delivery has returned.
"""
