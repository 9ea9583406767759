"""The agent of a host: it alone starts, stops and restarts the long-running processes there.

Nouns
    process     something named by a key: `receiver.r0`, `build.flights`
    generation  one request to run it; the same key and generation is always the same process, a higher
                generation replaces it once it is gone, a lower one is Refused
    lease       how long nobody may ask after a process before it counts as unattended; it goes on
    orphan      a process that nobody has asked after for much longer; it is stopped
    one-shot    a process that is expected to end (a build): its exit code stays readable until acknowledged

Invariants
    - At most one process per key runs at any moment, across crashes and restarts of the agent itself.
    - A generation that was stopped stays stopped: only a higher one starts the key again.
    - What runs is on the allow-list of `commands`; no shell is involved and no path comes from a caller.

It never decides what should run: that is Airflow's part. A restarted agent adopts the processes that its
predecessor left, by pid, start time and a mark in their environment.

`states` is the lifecycle table, `records` what is kept on disk, `commands` the allow-list, `job_specs` what
our own Spark jobs may be given, `processes` the operating system, `ledger` and `lifecycle` change one record,
`supervisor` does what callers ask, `watch` looks after what runs, `server` is the REST endpoint and the
process.
"""
