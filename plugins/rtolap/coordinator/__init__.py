"""The coordinator: one leader, any number of standbys, REST in front (`protocols.coordinator`).

`assembly` wires it, `server` serves the routes of `routes`, `leadership` elects the leader, runs the leader's
periodic work and refuses the commits of one that leads no more. The work: `cubes` (create, enable, and the
other switches), `alterations` (changes of running cubes), `assigners`, `assignment`, `reassignment` and
`moves` (who consumes what), `placement` (machines and racks), `balance` (plans by load), `retirement`
(drains, losses of replica sets, removals), `builds` (queue, attempts, promotion in order, batches), `merging`
(of small segments), `purge` (horizon, retention, clean-up), `losses` (events lost for good), `applications`
(watermarks by host), `heartbeats` (what receivers said), `watermark` (a pure rule) with `watermarks` (its
publication), `checks` (what needs a human).

Nothing that must survive is kept here: it is all in `metadata` and the object store, so a standby takes over
by starting to answer. Heartbeats are the one thing in memory; they are new within a second.

It never moves data and never decides what a segment holds: that is in the segment's record, by version check.
"""
