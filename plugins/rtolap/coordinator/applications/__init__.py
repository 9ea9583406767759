"""Watermarks of applications: reports come in, watermarks go out, persisted first.

Each application is run by one coordinator, its owner: `owned` has the rule by which they are spread,
takes them, keeps one `running.RunningApplication` each, and gives them up. `registry` is the front, and its
tick; `declarations` creates, changes and drops.

Reports come in by `intake`, which looks up in `sessions` what a client has reported before, by
`source_reports` for the hosts' progress in `sources`, and by `units` for the oldest work. Hosts come and go
by `host_changes`, lists are fetched off the tick by `host_lists`. `running` persists and publishes, `explain`
says why a window waits; `history` remembers samples that `holders` takes, and `histories` answers from them.

Kept in ZooKeeper, one record each: what was published, by which owner, whose word is awaited, approvals, and
the hosts that count. Progress is soft: a new owner asks everybody to say it again, and until then holds what
was published.

Never: publish what is not persisted; take a smaller watermark; take part of a damaged report.
"""
