"""The overview for Grafana in docker/monitoring/dashboard.json: `make reference` writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.support.paths import PROJECT

FILE = PROJECT / "docker" / "monitoring" / "dashboard.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3


@dataclass(frozen=True)
class Panel:
    """A panel. `unit` is Grafana's; each of `expressions` has the legend of its line."""

    title: str
    unit: str
    expressions: tuple[tuple[str, str], ...]


def _panel(title: str, unit: str, expression: str, legend: str) -> Panel:
    return Panel(title, unit, ((expression, legend),))


_P99 = "histogram_quantile(0.99, sum by (le) (rate({}_bucket[5m])))"
ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Services",
        (
            _panel("Services that answer", "none", 'up{job=~"rtolap.*"}', "{{job}} {{instance}}"),
            _panel("Coordinators that lead", "none", "sum by (job) (rtolap_coordinator_leading)", "{{job}}"),
            _panel(
                "Processes of agents",
                "none",
                "sum by (kind, state) (rtolap_agent_processes)",
                "{{kind}} {{state}}",
            ),
        ),
    ),
    (
        "Cubes",
        (
            _panel("Events", "eps", "sum by (cube) (rate(rtolap_receiver_events_total[5m]))", "{{cube}}"),
            _panel("Lag", "none", "sum by (cube) (rtolap_coordinator_lag_records)", "{{cube}}"),
            _panel(
                "Age of the low watermark",
                "s",
                "time() - max by (cube) (rtolap_coordinator_low_watermark_seconds)",
                "{{cube}}",
            ),
            _panel(
                "Segments", "none", "max by (cube, state) (rtolap_coordinator_segments)", "{{cube}} {{state}}"
            ),
            _panel(
                "Builds that failed", "none", "max by (cube) (rtolap_coordinator_failed_builds)", "{{cube}}"
            ),
            _panel(
                "Refused records",
                "cps",
                "sum by (cube, reason) (rate(rtolap_receiver_refused_records_total[5m]))",
                "{{cube}} {{reason}}",
            ),
        ),
    ),
    (
        "Statements",
        (
            _panel(
                "Statements",
                "reqps",
                "sum by (outcome) (rate(rtolap_query_queries_total[5m]))",
                "{{outcome}}",
            ),
            _panel("99 of 100 take at most", "s", _P99.format("rtolap_query_query_seconds"), "p99"),
            _panel(
                "Workers that ended",
                "cps",
                "sum by (reason) (rate(rtolap_query_workers_ended_total[5m]))",
                "{{reason}}",
            ),
        ),
    ),
    (
        "Loads and change capture",
        (
            _panel(
                "Rows of loaders",
                "rowsps",
                "sum by (loader) (rate(rtolap_loader_rows_loaded_total[5m]))",
                "{{loader}}",
            ),
            _panel("Lag of loaders", "none", "sum by (loader) (rtolap_loader_lag_records)", "{{loader}}"),
            _panel(
                "Loads by status",
                "cps",
                "sum by (status) (rate(rtolap_stream_load_loads_total[5m]))",
                "{{status}}",
            ),
            _panel(
                "Captured events",
                "eps",
                "sum by (outcome) (rate(rtolap_sep_consumer_delivery_events_total[5m]))",
                "{{outcome}}",
            ),
            Panel(
                "Events that are not taken",
                "none",
                (
                    ("sum(rtolap_sep_consumer_failing_events)", "failing"),
                    ("sum(rtolap_sep_consumer_rows_apart)", "rows apart"),
                ),
            ),
            _panel(
                "Lag of HBase's replication",
                "s",
                "max by (peer) (rtolap_replication_queue_lag_seconds)",
                "{{peer}}",
            ),
        ),
    ),
    (
        "Machines and brokers",
        (
            _panel(
                "Memory", "bytes", 'process_resident_memory_bytes{job=~"rtolap.*"}', "{{job}} {{instance}}"
            ),
            _panel("Free disk of storage nodes", "bytes", "rtolap_storage_disk_free_bytes", "{{instance}}"),
            _panel(
                "Slow brokers",
                "none",
                "max by (broker, request) (rtolap_fleet_broker_slow)",
                "{{broker}} {{request}}",
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        at = {"h": 1, "w": _WIDTH * _PER_ROW, "x": 0, "y": top}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": at, "panels": []})
        for number, panel in enumerate(row):
            at = {"h": _HEIGHT, "w": _WIDTH, "x": number % _PER_ROW * _WIDTH,
                  "y": top + 1 + number // _PER_ROW * _HEIGHT}  # fmt: skip
            panels.append(_drawn(len(panels) + 1, panel, at))
        top += 1 + -(-len(row) // _PER_ROW) * _HEIGHT
    return {
        "title": "rtolap: overview",
        "uid": "rtolap-overview",
        "tags": ["rtolap"],
        "schemaVersion": 36,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
            ]
        },
        "panels": panels,
    }


def _drawn(number: int, panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for index, (expression, legend) in enumerate(panel.expressions)
        ],
    }


def dashboard_text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"
