"""The overview for Grafana: over metrics of the catalogue, in panels that do not overlap."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.monitoring.dashboard import FILE, dashboard_text
from tests.support.monitoring.expressions import misfits

_BYTES_MAX = 100_000


def targets() -> list[dict[str, Any]]:
    return [each for panel in json.loads(FILE.read_text())["panels"] for each in panel.get("targets", ())]


def test_the_file_is_what_the_code_writes_and_small() -> None:
    assert FILE.read_text() == dashboard_text(), "write it again with `make reference`"
    assert FILE.stat().st_size < _BYTES_MAX


def test_expressions_name_metrics_and_labels_of_the_catalogue_only() -> None:
    assert len(targets()) > 15
    assert {each["expr"]: wrong for each in targets() if (wrong := misfits(each["expr"]))} == {}


def test_a_legend_names_labels_that_its_expression_keeps() -> None:
    for each in targets():
        grouped = re.findall(r"\bby \(([^)]*)\)", each["expr"])
        kept = {"job", "instance"} if not grouped else {name.strip() for name in grouped[0].split(",")}
        assert set(re.findall(r"\{\{(\w+)\}\}", each["legendFormat"])) <= kept, each["expr"]


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(FILE.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in panels)
    ]
    assert not any(one & other for one, other in combinations(cells, 2))
    assert max(x for cell in cells for x, _ in cell) < 24


def test_prometheus_parses_every_expression(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    rules = [{"record": f"panel:{number}", "expr": each["expr"]} for number, each in enumerate(targets())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    answer = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
