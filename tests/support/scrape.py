"""A service's metrics as Prometheus would read them, by its own parser."""

from __future__ import annotations

import ssl

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.monitoring.catalogued import page_misfits


class Scrape:
    """A page. `scrape("rtolap_query_queries_total", outcome="ok")` is a value, 0 where the page has none."""

    def __init__(self, page: str) -> None:
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """Return the sum over all whose labels hold these."""
        wanted = labels.items()
        return sum(
            value for (found, given), value in self._values.items() if found == name and wanted <= given
        )

    def labels(self, name: str, label: str) -> set[str]:
        """Return every value of a label."""
        return {dict(given)[label] for found, given in self._values if found == name}

    def __contains__(self, name: str) -> bool:
        return any(found == name for found, _ in self._values)


def scrape(url: str, token: str, *, ca_file: str | None = None) -> Scrape:
    """Scrape `url`, which is the service's, or the page itself, and hold the page against the catalogue.
    `ca_file` is the PEM of whom to trust over https."""
    page = url if url.endswith("/metrics") else f"{url}/metrics"
    trusted = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
    answer = httpx.get(page, headers={"Authorization": f"Bearer {token}"}, verify=trusted)
    answer.raise_for_status()
    assert page_misfits(answer.text) == []
    return Scrape(answer.text)
