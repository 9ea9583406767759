"""Series under which each alert has to fire once, and their like under which it must not."""

from __future__ import annotations

from dataclasses import dataclass, field

TARGET = {"job": "rtolap-x", "instance": "h:1"}


@dataclass(frozen=True)
class Case:
    """Series in the notation of promtool, one sample a minute from minute 0 on.

    Attributes:
        series: (metric with its labels, samples while something is wrong, samples while all is well).
        minute: when the alert fires.
        labels: of the alert, without its severity.
    """

    series: tuple[tuple[str, str, str], ...]
    minute: int
    labels: dict[str, str] = field(default_factory=dict)


def _one(metric: str, wrong: str, well: str, minute: int, **labels: str) -> Case:
    """Return a case of one series of a target, whose alert has the labels of the target and of the series."""
    given = {**TARGET, **labels}
    shown = ",".join(f'{name}="{value}"' for name, value in given.items())
    return Case(((f"{metric}{{{shown}}}", wrong, well),), minute, given)


def _grouped(by: dict[str, str], minute: int, *series: tuple[str, str, str]) -> Case:
    """Return a case whose alert has just the labels `by`; series have more."""
    return Case(series, minute, by)


_AT = 'job="rtolap-x",instance="h:1"'
CASES: dict[str, Case] = {
    "RtolapServiceDown": _one("up", "1 0x9", "1x10", 5),
    "RtolapNoLeader": _grouped(
        {"job": "rtolap-x"},
        6,
        (f"rtolap_coordinator_leading{{{_AT}}}", "1 0x9", "1 0x9"),
        ('rtolap_coordinator_leading{job="rtolap-x",instance="h:2"}', "0x10", "0 1x9"),
    ),
    "RtolapZookeeperLost": _one("rtolap_coordinator_zookeeper_connected", "1 0x9", "1x10", 5),
    "RtolapProcessFailed": _one("rtolap_agent_processes", "0 1x9", "0x10", 5, kind="loader", state="FAILED"),
    "RtolapMetadataRefused": _one("rtolap_query_metadata_records_refused_total", "0 0 3x9", "3x12", 6),
    "RtolapReceiverSilent": _one(
        "rtolap_coordinator_heartbeat_age_seconds", "1 61+60x9", "1x10", 6, receiver="r1"
    ),
    "RtolapReplicaSetLost": _one(
        "rtolap_coordinator_replica_set_missing_seconds", "60+60x9", "_x10", 5, replica_set="s1"
    ),
    "RtolapConsumerWaits": _one(
        "rtolap_receiver_consumer_state", "0 1x9", "0x10", 5, cube="c", state="FAILED"
    ),
    "RtolapLagGrows": _grouped(
        {"job": "rtolap-x", "cube": "c"},
        40,
        (f'rtolap_receiver_lag_records{{{_AT},cube="c",partition="0"}}', "90000+2000x50", "200000-2000x50"),
        (f'rtolap_receiver_lag_records{{{_AT},cube="c",partition="1"}}', "5x50", "5x50"),
    ),
    "RtolapWatermarkStuck": _grouped(
        {"cube": "c"},
        70,
        (f'rtolap_coordinator_low_watermark_seconds{{{_AT},cube="c"}}', "50x80", "50+60x80"),
        ('rtolap_receiver_events_total{job="rtolap-y",cube="c",partition="0"}', "0+9x80", "0+9x80"),
    ),
    "RtolapSegmentOverdue": _grouped(
        {"cube": "c"},
        400,
        (f'rtolap_coordinator_waiting_segment_end_seconds{{{_AT},cube="c"}}', "0x420", "0+60x420"),
    ),
    "RtolapBuildsFail": _grouped(
        {"cube": "c"}, 40, (f'rtolap_coordinator_failed_builds{{{_AT},cube="c"}}', "0 2x45", "0 2x20 0x30")
    ),
    "RtolapRecordsRefused": _grouped(
        {"cube": "c", "reason": "malformed"},
        20,
        (
            f'rtolap_receiver_refused_records_total{{{_AT},cube="c",reason="malformed"}}',
            "_x18 4x9",  # the reason's first records
            "4x30",
        ),
        (f'rtolap_receiver_position_offset{{{_AT},cube="c",partition="0"}}', "5+5x30", "5+5x30"),
    ),
    "RtolapEventsDropped": _grouped(
        {"cube": "c"},
        20,
        (f'rtolap_receiver_dropped_events_total{{{_AT},cube="c",partition="0"}}', "0x17 3x9", "3x30"),
    ),
    "RtolapLoaderStopped": _grouped(
        {"loader": "l"},
        30,
        (f'rtolap_loader_lag_records{{{_AT},loader="l"}}', "9+9x40", "9+9x40"),
        (f'rtolap_loader_batches_total{{{_AT},loader="l"}}', "7x40", "7+1x40"),
    ),
    "RtolapPartitionsFail": _grouped(
        {"loader": "l"}, 15, (f'rtolap_loader_partitions_failing{{{_AT},loader="l"}}', "0 1x19", "0x20")
    ),
    "RtolapCaptureStopped": _one("rtolap_sep_consumer_stopped", "0 1x9", "0x10", 5),
    "RtolapPoisonEvents": _one("rtolap_sep_consumer_rows_apart", "0 2x19", "0 2x2 0x16", 10, share="1"),
    "RtolapReplicationLags": _grouped(
        {"peer": "p"},
        25,
        (
            f'rtolap_replication_queue_lag_seconds{{{_AT},peer="p",server="s",queue="q"}}',
            "0+100x30",
            "300x30",
        ),
    ),
    "RtolapDiskFull": _one("rtolap_storage_disk_free_bytes", "100e9-100e6x400", "100e9-10e6x400", 390),
    "RtolapTabletsBroken": _one("rtolap_storage_tablets_broken", "0 1x9", "0x10", 5),
    "RtolapStatementsOutOfMemory": _grouped(
        {"reason": "sum"},
        20,
        (f'rtolap_query_workers_ended_total{{{_AT},reason="sum"}}', "_x18 1x9", "1x30"),
        (f'rtolap_query_workers_ended_total{{{_AT},reason="idle"}}', "0+1x30", "0+1x30"),
        (f"rtolap_query_workers_started_total{{{_AT}}}", "2+1x30", "2+1x30"),
    ),
    "RtolapMemoryHigh": _one("process_resident_memory_bytes", "9e9x30", "1e9x30", 20),
    "RtolapOpenFilesHigh": _grouped(
        TARGET,
        10,
        (f"process_open_fds{{{_AT}}}", "900x20", "500x20"),
        (f"process_max_fds{{{_AT}}}", "1024x20", "1024x20"),
    ),
    "RtolapBrokerSilent": _one("rtolap_fleet_broker_answers", "1 0x9", "1x10", 8, broker="3"),
    "RtolapBrokerSlow": _one("rtolap_fleet_broker_slow", "0 1x19", "0x20", 15, broker="3", request="produce"),
    "RtolapMoverStuck": _grouped(
        {"job": "rtolap-x"},
        40,
        (f"rtolap_fleet_mover_stepped_seconds{{{_AT}}}", "0x45", "0+60x45"),
    ),
}
