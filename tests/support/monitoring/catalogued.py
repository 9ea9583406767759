"""Differences between what services declare or serve, and the catalogue of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from rtolap.base.metric_catalogue import CATALOGUE, PROCESS, MetricRow

_SUFFIXES = {
    "counter": ("", "_created"),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
}
ROWS: dict[str, MetricRow] = {row.name(service): row for service, rows in CATALOGUE.items() for row in rows}


def sample_labels() -> dict[str, frozenset[str]]:
    """Return every name that a sample of the catalogue may have, with its labels; those of scraping are not
    among them."""
    found = {name: frozenset[str]() for name in PROCESS}
    for name, row in ROWS.items():
        for suffix in _SUFFIXES[row.metric_type]:
            base = name.removesuffix("_total") if suffix == "_created" else name
            found[f"{base}{suffix}"] = frozenset({*row.labels, *(("le",) if suffix == "_bucket" else ())})
    return found


def page_misfits(page: str) -> list[str]:
    """Return what is wrong with an exposition, family by family."""
    return list(_misfits(page))


def _misfits(page: str) -> Iterator[str]:
    for family in text_string_to_metric_families(page):
        if family.name.startswith(("process_", "python_")):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        row = ROWS.get(name)
        if row is None and family.name.endswith("_created") and family.type == "gauge":
            continue  # when a counter or histogram began, in the text format
        if row is None:
            yield f"{name} is not in the catalogue"
            continue
        if (family.type, family.documentation) != (row.metric_type, row.purpose):
            yield f"{name} is {family.type} {family.documentation!r}, and in the catalogue {row}"
        for sample in family.samples:
            given = set(sample.labels) - {"le"}
            if not set(row.labels) - row.optional <= given <= set(row.labels):
                yield f"{sample.name} has the labels {sorted(given)}, and in the catalogue {row.labels}"
