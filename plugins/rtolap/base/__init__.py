"""The foundation of every room: errors, clock, settings, files, metrics, users and secrets.

    nouns       `errors` is the one error tree, `clock`, `settings`, `closeable` and `transitions` (state
                tables that are executed); `optional` loads what an extra installs
    metrics     `metrics` makes counters of one form
    who asks    `users`, `cluster_secret`, `mutual_proof` (both ends prove the token), `tls` (of clients)
    bytes       `undecodable` names the errors of bytes that are no message
    files       `files` writes atomically, `operator_files` reads what operators write
    processes   `stopping`, `pids`, `cycle_collection`, `hidden_pandas`

Nothing in here knows of cubes, Kafka or ZooKeeper, and nothing in here imports another room.
"""
