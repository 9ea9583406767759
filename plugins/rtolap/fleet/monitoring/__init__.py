"""Full-link monitoring shows which broker is slow, in which stage of a request and on which disk, and who
notices.

    stages       times of requests by broker, request type and stage: the value, and between two looks
    sources      what the operator declares: Jolokia agents, Prometheus exporters, logs, our own processes
    http_pages   sources asked over HTTP, of all brokers at once
    jolokia      one bulk read of a broker's JMX; `prometheus_text` reads an exporter's page instead
    collect      one look at all brokers at once; who does not answer is named
    topic_rates  bytes a second by topic and broker, for snapshots
    history      looks in a file
    slow         the rule: p99 of reads and writes, without the long poll; when a broker is called slow
    causes       what is behind a slow stage: the disk, by a snapshot, the followers, a quota
    clients      statistics of our own Kafka clients, and the brokers that they find slow
    log_rules    what broker logs say of disks, replicas and controllers; `log_watch` reads them on,
                 `log_findings` counts

Never: act on a broker, or write to one. Whoever acts asks `slow` for what is certain.
"""
