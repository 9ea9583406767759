"""Every metric of every service: name, type, help, labels. A test holds the pages of services equal to it.

    CATALOGUE["receiver"]           rows of a receiver's page; those of the process itself are `PROCESS`
    row.name("receiver")            rtolap_receiver_lag_records, rtolap_receiver_events_total

Docs, alert rules and the dashboard name metrics of this catalogue, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

MetricType = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class MetricRow:
    """A metric as a service declares it, with `what` for its name.

    Attributes:
        what: name behind the service's, with its unit and without `_total`.
        purpose: text of its HELP line.
        labels: names of all labels that it may have.
        optional: those of them that not every process gives.
    """

    what: str
    metric_type: MetricType
    purpose: str
    labels: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()

    def name(self, service: str) -> str:
        """Return the name of its samples; of a histogram without `_bucket`, `_sum` and `_count`."""
        return f"rtolap_{service}_{self.what}{'_total' if self.metric_type == 'counter' else ''}"


def _row(what: str, metric_type: MetricType, purpose: str, labels: str) -> MetricRow:
    """Return a row. `labels` are separated by spaces; one that not every process gives ends in `?`."""
    names = labels.split()
    optional = frozenset(name.removesuffix("?") for name in names if name.endswith("?"))
    return MetricRow(what, metric_type, purpose, tuple(name.removesuffix("?") for name in names), optional)


def _counter(what: str, purpose: str, labels: str = "") -> MetricRow:
    return _row(what, "counter", purpose, labels)


def _gauge(what: str, purpose: str, labels: str = "") -> MetricRow:
    return _row(what, "gauge", purpose, labels)


def _histogram(what: str, purpose: str, labels: str = "") -> MetricRow:
    return _row(what, "histogram", purpose, labels)


_HTTP = (
    _gauge("http_connections", "Open HTTP connections."),
    _counter("http_connections_ended", "Connections that were refused or cut off.", "reason"),
    _histogram("http_request_seconds", "A request, until the last byte of its answer.", "method route"),
    _counter("http_requests", "Requests that were answered.", "method route status"),
    _gauge("http_requests_running", "Requests under way."),
)
_FLIGHT = (
    _histogram("flight_call_seconds", "A Flight call, until its last message.", "method outcome"),
    _counter("flight_calls_refused", "Flight calls that were refused before the server saw them.", "reason"),
    _gauge("flight_connections", "Open Flight connections."),
    _counter("flight_connections_ended", "Flight connections that were refused or cut off.", "reason"),
)
_KAFKA_CLIENTS = (
    _gauge(
        "kafka_client_fetch_queue_records",
        "Over partitions: fetched, not taken yet.",
        "topic broker rank",
    ),
    _gauge("kafka_client_fetch_wait_seconds", "The longest long poll.", "topic"),
    _gauge("kafka_client_lag_records", "Over partitions: not read yet.", "topic broker rank"),
    _gauge(
        "kafka_client_outbuf_seconds",
        "Requests that wait in this process to be sent.",
        "topic broker rank",
    ),
    _gauge("kafka_client_requests", "Answers in the last interval.", "topic broker"),
    _gauge("kafka_client_rtt_seconds", "From sending a request until its answer.", "topic broker rank"),
    _gauge("kafka_client_throttle_seconds", "What a quota of the broker adds.", "topic broker rank"),
)
_SIGNED_RECORDS = (
    _counter("metadata_records_refused", "Records in ZooKeeper without the cluster's signature, as read."),
)

_AGENT = (
    _counter("process_events", "Steps in the lives of processes.", "kind event"),
    _gauge("processes", "Processes by state.", "kind state"),
    _gauge("restarts", "Restarts after crashes that count against their limit now.", "kind"),
)
_COORDINATOR = (
    _counter("application_moves", "Applications that it has taken, given up to others, and lost.", "how"),
    _gauge("applications", "Applications that it owns."),
    _gauge("failed_builds", "Segments whose newest build has failed.", "cube"),
    _gauge("heartbeat_age_seconds", "Since its last heartbeat.", "receiver"),
    _gauge("lag_records", "Records that its partitions hold and it has not read.", "receiver cube"),
    _gauge("leading", "1 while this coordinator leads."),
    _gauge("low_watermark_seconds", "Event time up to which a cube's events are there, Unix time.", "cube"),
    _counter("relief_moves", "Moves that it has planned off a drained or lost replica set.", "replica_set"),
    _gauge("replica_set_missing_seconds", "Since none of its receivers lives.", "replica_set"),
    _gauge("replica_sets", "Replica sets by state, as the leader has seen them last.", "state"),
    _gauge("segments", "Segments by state.", "cube state"),
    _gauge(
        "shared_place_receivers",
        "Receivers of a replica set that one machine or rack takes together.",
        "replica_set kind place",
    ),
    _histogram("tick_seconds", "One round of its duties, as an owner and as the leader."),
    _gauge(
        "waiting_segment_end_seconds",
        "End of the earliest segment that is closed and not READY, Unix time.",
        "cube",
    ),
    _gauge("zookeeper_connected", "1 while its session is connected."),
)
_FLEET = (
    _gauge("broker_answers", "1 where the broker's source has answered.", "broker"),
    _gauge("broker_lag_records", "How far it is behind a leader, at most.", "broker"),
    _gauge("broker_slow", "1 while the broker is called slow.", "broker request"),
    _counter("log_lines", "Lines of broker logs by rule.", "broker rule"),
    _gauge("log_storm_seconds", "When a storm was last seen.", "broker rule"),
    _gauge("requests_per_second", "Requests of the last window.", "broker request"),
    _gauge("stage_mean_seconds", "Of the last window's requests.", "broker request stage"),
    _gauge("stage_p99_seconds", "Of late requests, at most what their mean allows.", "broker request stage"),
    _gauge("stages_looked_at_seconds", "When brokers were last looked at, since 1970."),
)
_FLEET_MOVER = (
    _gauge("broker_moves_max", "Moves that a broker may have under way by its writes.", "broker"),
    _gauge("copied_bytes_per_second", "Of moves that go on, at the last look."),
    _counter("errors", "Steps that failed and are tried again.", "code"),
    _gauge("expected_end_seconds", "At the present pace, since 1970."),
    _gauge("window_open", "1 while moves may begin by the hours of the plan."),
    _gauge("leading", "1 while it has the lease of the cluster."),
    _gauge("left_bytes", "To be copied of moves that are pending or under way."),
    _gauge("moved_bytes", "Copied by moves that are done."),
    _gauge("moves", "Moves of that plan by state.", "state"),
    _gauge("oldest_move_seconds", "For so long the oldest move is under way."),
    _gauge("plan_state", "1 for the state of the plan that is carried out.", "state"),
    _gauge("produce_p99_max_seconds", "A broker whose writes take longer gets fewer moves."),
    _gauge("produce_p99_seconds", "Of writes, as last read.", "broker"),
    _gauge(
        "produce_unread_brokers", "Brokers that serve and whose writes the last reading does not tell of."
    ),
    _counter("requests", "Requests that were answered: taken, or the code of the error.", "kind outcome"),
    _gauge(
        "slow_moves",
        "Moves that copy nothing, that do not gain on what is written, or that the end waits for.",
        "reason",
    ),
    _gauge("stepped_seconds", "When a step last ended well, since 1970."),
    _gauge("throttle_bytes_per_second", "What each broker sends and takes at most."),
    _gauge("throttle_needed_bytes_per_second", "The throttle under which moves that are behind would gain."),
)
_LOADER = (
    _counter("attempts", "Attempts to settle a batch.", "loader"),
    _counter("batches", "Batches that were settled.", "loader"),
    _gauge("batches_pending", "Batches recorded and not settled.", "loader"),
    _gauge("lag_records", "Records of its partitions that are not loaded.", "loader"),
    _gauge("leads", "1 while this process leads the job.", "loader"),
    _counter("loaded_bytes", "Bytes of the records that were loaded.", "loader"),
    _gauge("partitions_failing", "1 while partitions cannot be made.", "loader"),
    _counter("partitions_made", "Partitions that were made in the sink.", "loader"),
    _gauge("partitions_owned", "Partitions of the topic that this process loads.", "loader"),
    _gauge("partitions_until_seconds", "Up to this instant rows find their partition.", "loader"),
    _gauge("processes_wanted", "Processes that the job is to have.", "loader"),
    _counter("rows_loaded", "Rows that the sink has taken.", "loader"),
    _counter("rows_rejected", "Records and rows that were refused.", "loader"),
    _gauge("shares_owned", "Shares that this process has.", "loader"),
)
_PUBLISH = (
    _counter("failed_looks", "Looks that failed, by error.", "error"),
    _counter("looks", "Looks at the cube that succeeded."),
    _counter("snapshots", "Snapshots that were committed."),
    _gauge("table_metadata_bytes", "Size of the newest metadata file."),
    _gauge("table_snapshots", "Snapshots that the table has."),
)
_QUERY = (
    _gauge("history_cache_bytes", "Bytes of copies on the disk.", "state"),
    _gauge("history_cache_bytes_max", "What copies may take."),
    _counter("history_cache_copied_bytes", "Bytes of files that were copied."),
    _counter("history_cache_evicted_files", "Copies that went.", "reason"),
    _counter("history_cache_failed_copies", "Copies that failed.", "reason"),
    _gauge("history_cache_files", "Copies on the disk.", "state"),
    _gauge("history_cache_state", "1 for the state it is in.", "state"),
    _counter("history_files_read", "Files of history that were read, by where they were.", "source"),
    _counter(
        "history_spilled_bytes", "Bytes of partial rows of history that were written to the disk.", "cube"
    ),
    _gauge("mysql_connections", "Open MySQL connections."),
    _counter("mysql_logins", "MySQL connections by what became of their login.", "outcome"),
    _counter("mysql_slow_readers", "MySQL connections that were cut off because they did not read."),
    _counter("partial_rows", "Partial aggregates that receivers answered.", "cube"),
    _counter("queries", "Queries that have ended.", "outcome"),
    _gauge("queries_running", "Queries whose rows are not all read yet."),
    _counter("query_log_dropped", "Statements that are not in the query log: its disk took none for long."),
    _histogram("query_seconds", "A query, from its text to its last row read or its error."),
    _counter("reads_joined", "Reads of cubes that an equal statement made for more than itself.", "cube"),
    _gauge("reads_waiting", "Statements that wait while an equal one reads."),
    _counter("rewrites", "Statements that were not known as they had been rewritten before."),
    _counter("rows_answered", "Rows that queries answered."),
    _counter("rows_read", "Rows of history that were read.", "cube"),
    _gauge("user_memory_bytes", "Memory of the service that users have reserved."),
    _counter("user_memory_refusals", "What was refused because a user would have had too much memory."),
    _gauge("workers", "Worker processes.", "state"),
    _counter("workers_ended", "Worker processes that were ended, or ended.", "reason"),
    _counter("workers_started", "Worker processes that were started."),
)
_RECEIVER = (
    _gauge("consumer_state", "1 for the state that the consumer is in.", "cube state"),
    _gauge("cuboid_bytes", "Small cuboids in memory, beside fragments.", "cube"),
    _counter("dropped_events", "Late ones that were dropped.", "cube partition"),
    _counter("events", "Events that were taken in.", "cube partition"),
    _counter("filtered_records", "Records that the table's condition left out.", "cube partition"),
    _gauge(
        "freshness_seconds",
        "From a record's creation until answers have it, the longest of the last minute.",
        "cube",
    ),
    _counter(
        "hostless_events", "Events without a usable host, where hosts decide what closes.", "cube partition"
    ),
    _gauge("lag_records", "Records up to the end of the log.", "cube partition"),
    _counter("late_events", "Of them, those after their segment closed.", "cube partition"),
    _gauge("leading", "1 while it leads its replica set.", "cube"),
    _gauge("memory_table_bytes", "Tables in memory, small cuboids included."),
    _gauge("position_offset", "The next offset to read.", "cube partition"),
    _counter("refused_records", "Records that are no events of the table.", "cube reason"),
    _gauge("segments", "Local segments by state.", "cube state"),
    _gauge("watermark_seconds", "The largest event time seen, Unix time.", "cube partition"),
)
_REPLICATION = (
    _gauge("looked_at_seconds", "When the cluster was looked at, since 1970."),
    _gauge("peer_catch_up_seconds", "Until nothing remains, if it goes on so.", "peer"),
    _gauge("peer_enabled", "1 where HBase ships to the peer.", "peer"),
    _gauge("peer_recovered_queues", "Queues of servers that are gone.", "peer"),
    _gauge("peer_sinks", "Servers of the receiving cluster.", "peer"),
    _gauge("queue_failed_batches", "Calls that failed since the server started.", "peer server queue"),
    _gauge("queue_lag_seconds", "Age of the oldest edit that is not shipped.", "peer server queue"),
    _gauge("queue_last_shipped_seconds", "When an edit was last shipped, since 1970.", "peer server queue"),
    _gauge("queue_logs", "Logs that are not shipped, with the current one.", "peer server queue"),
    _gauge(
        "queue_remaining_bytes",
        "Of its logs, not read yet; at least, while HDFS has one open.",
        "peer server queue",
    ),
)
_SEP_CONSUMER = (
    _histogram("call_seconds", "A call of ReplicateWALEntry, from its first byte to its answer."),
    _counter("calls", "Calls, by outcome.", "outcome"),
    _counter("cells", "Cells of these events."),
    _gauge("connections", "Connections that are open."),
    _counter("connections_accepted", "Connections that were accepted."),
    _counter("connections_closed", "Connections that ended, by reason.", "reason"),
    _counter(
        "delivery_events", "Events by what became of them, since this process delivers.", "share? outcome"
    ),
    _counter("entries", "WAL entries in calls that could be read."),
    _counter("events", "Events that were handed to delivery."),
    _gauge("failing_events", "Events that the listener did not take.", "share?"),
    _counter("forwarded_events", "Events that other consumers delivered for this one."),
    _gauge("in_flight_bytes", "Bytes of frames that are read or worked on."),
    _gauge("leads", "1 while this process delivers."),
    _counter("left_out", "Entries, cells and events left out, by reason.", "reason"),
    _gauge("oldest_waiting_seconds", "How long the oldest of these parts has waited.", "share"),
    _counter("received_bytes", "Bytes of frames that were read whole."),
    _gauge("remembered_edits", "Delivered edits that would be recognised.", "share?"),
    _gauge("rows_apart", "Rows whose events wait among the dead letters.", "share?"),
    _counter("set_apart_events", "Events that HBase's logs cannot hold, set apart."),
    _gauge("shares_held", "Shares that this process delivers now."),
    _gauge("stopped", "1 where nothing more is taken until it is started again.", "share?"),
    _gauge("troubled", "1 while the target takes nothing.", "share?"),
    _gauge("waiting_calls", "Parts of calls that are not answered yet.", "share"),
    _gauge("waiting_events", "Events of these parts.", "share"),
    _gauge("waiting_frames", "Frames that wait until bytes are free."),
)
_STORAGE = (
    _counter("compaction_failures", "Compactions that came to nothing."),
    _counter("compactions", "Compactions that were done."),
    _gauge("disk_free_bytes", "Room on the disk."),
    _gauge("file_bytes", "Bytes of these files."),
    _gauge("files", "Files of published rows."),
    _gauge("load_memory_bytes", "Rows that are in no file yet."),
    _counter("loaded_rows", "Rows that have come in streams."),
    _gauge("loads_running", "Streams of rows that are coming in."),
    _gauge("prepared", "Transactions in tablets that wait for their end."),
    _gauge("rows", "Rows in files, before merging."),
    _gauge("tablets", "Tablets that are kept here."),
    _gauge("tablets_broken", "Tablets that cannot be opened."),
    _counter("verified_bytes", "Bytes that were read again to find damage, since the node was started."),
)
_STREAM_LOAD = (
    _counter("load_bytes", "Bytes of bodies."),
    _histogram("load_seconds", "A load, from its headers to its answer."),
    _counter("loads", "Loads that were answered.", "status"),
    _counter("loads_refused", "Loads refused because too many ran."),
    _gauge("loads_running", "Loads under way."),
    _counter("rows", "Rows of loads.", "what"),
)

# service: what its page shows.
CATALOGUE: Final[Mapping[str, tuple[MetricRow, ...]]] = {
    "agent": (*_AGENT, *_HTTP),
    "coordinator": (*_COORDINATOR, *_HTTP, *_SIGNED_RECORDS),
    "fleet": (*_FLEET, *_HTTP),
    "fleet_mover": (*_FLEET_MOVER, *_HTTP),
    "loader": (*_LOADER, *_HTTP, *_KAFKA_CLIENTS),
    "publish": (*_PUBLISH, *_HTTP, *_SIGNED_RECORDS),
    "query": (*_QUERY, *_HTTP, *_SIGNED_RECORDS),
    "receiver": (*_RECEIVER, *_HTTP, *_FLIGHT, *_KAFKA_CLIENTS, *_SIGNED_RECORDS),
    "replication": (*_REPLICATION, *_HTTP),
    "sep_consumer": (*_SEP_CONSUMER, *_HTTP, *_FLIGHT),
    "storage": (*_STORAGE, *_HTTP, *_FLIGHT),
    "stream_load": (*_STREAM_LOAD, *_HTTP),
}

# Of the process itself, without a service in their names: Prometheus' client library shows them.
PROCESS: Final[Mapping[str, MetricType]] = {
    "process_virtual_memory_bytes": "gauge",
    "process_resident_memory_bytes": "gauge",
    "process_start_time_seconds": "gauge",
    "process_cpu_seconds_total": "counter",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
    "python_info": "gauge",
}
