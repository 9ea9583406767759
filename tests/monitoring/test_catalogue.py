"""The catalogue of metrics: Prometheus' conventions, nothing that no service has, and what pages show."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from itertools import pairwise

import pytest
from rtolap.base.metric_catalogue import CATALOGUE, MetricRow
from rtolap.base.metrics import Metrics

from tests.support.monitoring.catalogued import ROWS, page_misfits
from tests.support.monitoring.pages import catalogue_page
from tests.support.paths import PLUGINS

_NO_BASE_UNIT = re.compile(
    r"_(ms|millis|milliseconds|us|ns|minutes|hours|days|kb|mb|gb|kib|mib|gib|percent|bits)(_|$)"
)
_PACKAGE = PLUGINS / "rtolap"


def literals() -> set[str]:
    """Return all texts of the product's code but for those of the catalogue."""
    return {
        node.value
        for file in _PACKAGE.rglob("*.py")
        if file.name != "metric_catalogue.py"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_names_have_base_units_and_counters_end_in_total() -> None:
    wrong = [
        name
        for name, row in ROWS.items()
        if _NO_BASE_UNIT.search(name)
        or not re.fullmatch(r"rtolap(_[a-z0-9]+)+", name)
        or row.what.endswith(("_total", "_count", "_sum", "_bucket", "_info"))
        or (row.metric_type == "histogram" and not name.endswith(("_seconds", "_bytes")))
        or not row.purpose.endswith(".")
        or not all(re.fullmatch(r"[a-z][a-z_]*", label) for label in row.labels)
    ]
    assert wrong == []


def test_no_name_is_there_twice_and_rows_are_sorted() -> None:
    for service, rows in CATALOGUE.items():
        names = [row.name(service) for row in rows]
        assert len(set(names)) == len(names), service
    assert len(ROWS) == sum(len(rows) for rows in CATALOGUE.values()), "two services share a name"
    assert all(one < other for one, other in pairwise(CATALOGUE))


def test_every_service_of_the_product_has_rows() -> None:
    """A service begins with `Metrics("name")`, or with a module's `SERVICE`."""
    found = set()
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Metrics"), args=[ast.Constant(value=str(service))]):
                    found.add(service)
                case ast.Assign(targets=[ast.Name(id="SERVICE")], value=ast.Constant(value=str(service))):
                    if file.name == "metrics.py":
                        found.add(service)
    assert found == set(CATALOGUE)


def test_every_row_is_declared_somewhere() -> None:
    texts = literals()
    missing = [name for name, row in ROWS.items() if row.what not in texts]
    assert missing == []


def test_a_page_that_fits_passes_and_each_difference_is_told() -> None:
    page = catalogue_page("receiver")
    assert page_misfits(page) == []
    for old, new in (
        ("rtolap_receiver_late_events", "rtolap_receiver_later_events"),
        ('events_total{cube="x"', 'events_total{table="x"'),
        ("# TYPE rtolap_receiver_leading gauge", "# TYPE rtolap_receiver_leading counter"),
        ("1 while it leads its replica set.", "Whether it leads."),
    ):
        assert old in page
        assert page_misfits(page.replace(old, new)) != [], new


def test_a_service_has_the_metrics_of_its_rows_and_no_others() -> None:
    metrics = Metrics("receiver")
    family = metrics.family("lag_records", [(("flights", "0"), 3), (("flights", "1"), None)])
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        ({"cube": "flights", "partition": "0"}, 3)
    ]
    assert family.documentation == "Records up to the end of the log."
    with pytest.raises(LookupError, match="rtolap_receiver_lag is no row of the catalogue"):
        metrics.family("lag")
    with pytest.raises(LookupError, match="lag_records is a gauge of the catalogue, and no counter"):
        metrics.counter("lag_records")
    with pytest.raises(ValueError, match="has the labels"):
        metrics.family("lag_records", [(("flights",), 3)])
    with pytest.raises(KeyError):
        Metrics("recievers")


def test_an_optional_label_is_left_out_where_a_process_does_not_give_it() -> None:
    metrics = Metrics("sep_consumer")
    assert metrics.family("stopped", [(("0",), 1)]).samples[0].labels == {"share": "0"}
    assert metrics.family("stopped", [((), 1)], without=("share",)).samples[0].labels == {}
    with pytest.raises(ValueError, match="has the labels"):
        metrics.family("waiting_calls", [(("0", "1"), 1)], without=("share",))


@pytest.mark.parametrize("service", CATALOGUE)
def test_prometheus_own_linter_finds_nothing(service: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    answer = subprocess.run(
        [promtool, "check", "metrics"],
        check=False,
        input=catalogue_page(service),
        text=True,
        capture_output=True,
    )
    told = (answer.stdout + answer.stderr).splitlines()
    assert told == [], answer.returncode


def test_optional_labels_are_among_the_labels() -> None:
    assert all(row.optional <= set(row.labels) for row in ROWS.values())
    rows = [MetricRow("x", "gauge", "X.")]
    assert rows[0].name("trial") == Metrics("trial", rows).value("x", 1).name
