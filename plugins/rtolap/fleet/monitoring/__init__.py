"""Full-link monitoring: which broker is slow, in which stage of a request, on which disk, and who notices.

    stages       times of requests by broker, request type and stage: the value, and between two looks
    sources      what the operator declares: Jolokia agents, Prometheus exporters, logs, our own processes
    jolokia      one bulk read of a broker's JMX; `prometheus_text` reads an exporter's page instead
    collect      one look at all brokers at once; who does not answer is named
    ask_brokers  the same for whatever else is asked of sources, once
    topic_rates  bytes a second by topic and broker, for snapshots
    history      looks in a file
    slow_states  when a broker is called slow, and when no longer: the table
    slow         the rule: p99 of reads and writes, without the long poll; the stage, the disk, the followers
    disks        what share of a broker's traffic goes to each log directory, by a snapshot
    clients      statistics of our own Kafka clients, and the brokers that they find slow
    log_rules    what broker logs say of disks, replicas and controllers; `log_files` reads them on,
                 `log_findings` counts, `log_watch` knows where reading stopped

Never: act on a broker, or write to one. Whoever acts asks `slow` for what is certain.
"""
