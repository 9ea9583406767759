"""An exposition that shows each metric of a service once, out of the catalogue."""

from __future__ import annotations

from rtolap.base.metric_catalogue import CATALOGUE
from rtolap.base.metrics import Metrics


def catalogue_page(service: str) -> str:
    metrics = Metrics(service)
    for row in CATALOGUE[service]:
        metric = getattr(metrics, row.metric_type)(row.what)
        child = metric.labels(*("x" for _ in row.labels)) if row.labels else metric
        (child.observe if row.metric_type == "histogram" else child.inc)(1)
    return metrics.render()[0].decode()
