"""Alert rules: over metrics of the catalogue, each with a runbook, each firing once on series made for it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rtolap.base.metric_catalogue import CATALOGUE

from tests.support.monitoring.alert_cases import CASES
from tests.support.monitoring.expressions import misfits
from tests.support.paths import PROJECT

RULES = PROJECT / "docker" / "monitoring" / "alerts.yml"
RUNBOOKS = PROJECT / "docs" / "operations" / "runbooks.md"


@functools.cache
def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    found = {rule["alert"]: rule for rule in rules}
    assert len(found) == len(rules), "two alerts of one name"
    return found


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    return found


def test_every_alert_has_its_severity_summary_and_a_runbook_of_its_name() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.M)
    for name, rule in alerts().items():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, name
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"}), name
        assert set(rule["annotations"]) == {"summary", "runbook"}, name
        assert rule["annotations"]["runbook"] == f"docs/operations/runbooks.md#{name.lower()}"
    assert [each for each in headings if each != "Use"] == list(alerts()), "in the same order"


def test_every_runbook_says_what_to_look_at_and_names_a_command_or_a_page() -> None:
    for part in RUNBOOKS.read_text().split("\n## ")[2:]:
        assert "\nLook at " in part, part
        assert "`rtolap " in part or "](" in part, part


def test_expressions_name_metrics_and_labels_of_the_catalogue_only() -> None:
    assert {name: wrong for name, rule in alerts().items() if (wrong := misfits(rule["expr"]))} == {}
    for name, rule in alerts().items():
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert named <= set(CASES[name].labels), name


@pytest.mark.parametrize(
    "expression",
    [
        "rtolap_receiver_lags > 0",
        'rtolap_receiver_lag_records{table="x"} > 0',
        "sum by (table) (rtolap_receiver_lag_records) > 0",
        "rate(rtolap_receiver_events[5m]) > 0",
        "rtolap_coordinator_tick_seconds > 1",
        '{job="rtolap"} == 0',
        "time() > 0",
    ],
)
def test_what_the_catalogue_does_not_have_is_noticed(expression: str) -> None:
    assert misfits(expression) != []


def test_no_metric_has_a_label_that_scraping_gives_its_targets() -> None:
    """Prometheus would rename it to `exported_…`."""
    of_targets = {service: {"job", "instance", "service"} for service in CATALOGUE}
    of_targets["receiver"] |= {"receiver", "replica_set"}
    wrong = [
        row.name(service)
        for service, rows in CATALOGUE.items()
        for row in rows
        if set(row.labels) & of_targets[service]
    ]
    assert wrong == []


def test_prometheus_takes_the_rules(promtool: str) -> None:
    answer = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == list(alerts())


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_once_when_something_is_wrong_and_never_when_all_is_well(
    promtool: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": list(_tests(name))}))
    answer = subprocess.run(
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


def _tests(name: str) -> Iterator[dict[str, Any]]:
    rule, case = alerts()[name], CASES[name]

    def filled(match: re.Match[str]) -> str:
        return case.labels[match[1]]

    fired = {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {
            key: re.sub(r"\{\{ \$labels\.(\w+) \}\}", filled, text)
            for key, text in rule["annotations"].items()
        },
    }
    for column, expected in ((1, [fired]), (2, [])):
        at = [{"alertname": name, "eval_time": f"{case.minute}m", "exp_alerts": expected}]
        yield {
            "interval": "1m",
            "input_series": [{"series": each[0], "values": each[column]} for each in case.series],
            "alert_rule_test": at
            if expected
            else [{**at[0], "eval_time": f"{m}m"} for m in range(case.minute)],
        }
