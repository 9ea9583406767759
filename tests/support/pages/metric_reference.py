"""The list of metrics in docs/operations/metrics.md, out of the catalogue. `make reference` writes it."""

from __future__ import annotations

from collections.abc import Iterator

from rtolap.base.metric_catalogue import CATALOGUE, PROCESS, MetricRow

from tests.support.paths import PROJECT

PAGE = PROJECT / "docs" / "operations" / "metrics.md"
BEGIN = "<!-- metrics: written by `make reference` -->\n"
END = "<!-- end of metrics -->\n"
TITLES = {
    "agent": "Agent",
    "coordinator": "Coordinator",
    "fleet": "Monitoring of brokers",
    "fleet_mover": "Mover",
    "loader": "Loader",
    "publish": "Publisher",
    "query": "Query service",
    "receiver": "Receiver",
    "replication": "Looks at HBase's replication",
    "sep_consumer": "Consumer of change capture",
    "storage": "Storage node",
    "stream_load": "Front end, and a storage node's port for loads",
}


def _lines() -> Iterator[str]:
    """Yield the list. A metric of several services stands once, with the services that have it."""
    services: dict[MetricRow, list[str]] = {}
    for service, rows in CATALOGUE.items():
        for row in rows:
            services.setdefault(row, []).append(service)
    yield from ("", "### Of several services")
    for row, having in services.items():
        if len(having) > 1:
            of = "all" if len(having) == len(CATALOGUE) else ", ".join(having)
            yield _line("…_" + row.name("").removeprefix("rtolap__"), row, f" ({of})")
    yield f"- {', '.join(f'`{name}`' for name in PROCESS)}: the process itself."
    for service, rows in CATALOGUE.items():
        yield from ("", f"### {TITLES[service]}")
        for row in rows:
            if len(services[row]) == 1:
                yield _line(row.name(service), row, "")
    yield ""


def _line(name: str, row: MetricRow, of: str) -> str:
    """Return a line of the list. The name of a counter, which ends in `_total`, tells its type."""
    labels = ", ".join(f"{label}?" if label in row.optional else label for label in row.labels)
    shown = f"{name}{{{labels}}}" if labels else name
    metric_type = "" if row.metric_type == "counter" else f", {row.metric_type}"
    return f"- `{shown}`{metric_type}: {row.purpose}{of}"


def metrics_page() -> str:
    """Return the page with its list as the catalogue has it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}" + "\n".join(_lines()) + f"\n{END}{after}"
