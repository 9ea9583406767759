"""Watermarks of applications: reports come in, watermarks go out, persisted first.

`service` is the front: one `running.RunningApplication` per declared application on the leader, and its
tick. `sources` holds the hosts' progress of a source, `units` the oldest work of the units, `sessions` what
a client has told, `columns` and `intake` read its reports, `host_lists` fetches lists off the tick,
`explain` says why a window waits.

Kept in ZooKeeper, one record each: what was published, whose word is awaited, approvals, and the hosts that
count. Progress is soft: a new leader asks everybody to say it again, and until then holds what was
published.

Never: publish what is not persisted; take a smaller watermark; take part of a damaged report.
"""
