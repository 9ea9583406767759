"""The foundation of every room: errors, clock, settings, files, metrics, guarded servers.

    nouns       `errors` is the one error tree, `clock`, `settings`, `closeable` and `transitions` (state
                tables that are executed); `optional` loads what an extra installs
    metrics     `metrics` makes counters of one form, `metrics_http` counts requests, `metrics_server` serves
                the page
    HTTP        `http_server` runs an application, `http_protocol` and `http_guard` stand before it with the
                bounds of `server_limits`; `undecodable` answers what is no text
    Flight      `flight_guard` stands before every Flight port
    who asks    `users`, `cluster_secret`, `mutual_proof` (both ends prove the token), `tls`
    files       `files` writes atomically, `operator_files` reads what operators write
    processes   `stopping`, `pids`, `cycle_collection`, `hidden_pandas`

Nothing in here knows of cubes, Kafka or ZooKeeper, and nothing in here imports another room.
"""
