"""`rtolap airflow-settings apply` on a real Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.integration

SHIPPED = Path(__file__).resolve().parents[3] / "airflow_settings.yaml"
CONNECTION = {
    "conn_id": "it_rtolap",
    "conn_type": "rtolap",
    "conn_host": "10.0.0.5",
    "conn_port": 7070,
    "conn_password": "s3cret",
}
POOL = {"pool_name": "it_pool", "pool_slot": 3, "pool_description": "of a test"}
VARIABLE = {"variable_name": "it_variable", "variable_value": '[1, {"a": "b"}]'}
ENTRIES = (
    "connections/rtolap_default",
    "connections/kafka_default",
    "connections/spark_default",
    "connections/it_rtolap",
    "pools/it_pool",
    "variables/rtolap_receivers",
    "variables/it_variable",
)


def test_a_settings_file_is_there_afterwards_and_twice_is_once(airflow: Any, tmp_path: Path) -> None:
    """What is shipped, and one more of each kind."""
    content = yaml.safe_load(SHIPPED.read_text())
    for kind, entry in (("connections", CONNECTION), ("pools", POOL), ("variables", VARIABLE)):
        content["airflow"].setdefault(kind, []).append(entry)
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(content))

    def apply() -> Any:
        done = airflow.command("rtolap", "airflow-settings", "apply", str(file), timeout_s=180)
        assert done.returncode == 0, done.stderr
        assert "s3cret" not in done.stdout + done.stderr
        return done.stdout

    def entries() -> dict[str, Any]:
        found = {path: airflow.api.get(f"/api/v2/{path}").raise_for_status().json() for path in ENTRIES}
        total = {
            kind: airflow.api.get(f"/api/v2/{kind}").raise_for_status().json()["total_entries"]
            for kind in ("connections", "pools", "variables")
        }
        return found | total

    said = apply()
    assert "rtolap_default" in said
    assert "it_pool" in said
    first = entries()
    assert (first["connections/it_rtolap"]["host"], first["connections/it_rtolap"]["port"]) == (
        "10.0.0.5",
        7070,
    )
    assert "agent_url" in first["connections/rtolap_default"]["extra"]
    assert (first["pools/it_pool"]["slots"], first["pools/it_pool"]["description"]) == (3, "of a test")
    assert "r0" in first["variables/rtolap_receivers"]["value"]
    assert first["variables/it_variable"]["value"] == '[1, {"a": "b"}]'
    apply()
    assert entries() == first
    for shipped in ("kafka_default", "spark_default"):  # which count for what other tests here run
        airflow.api.delete(f"/api/v2/connections/{shipped}").raise_for_status()


def test_a_wrong_file_is_one_clear_line_and_changes_nothing(airflow: Any, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("airflow:\n  pools:\n    - {pool_name: it_wrong, pool_slots: 3}\n")
    done = airflow.command("rtolap", "airflow-settings", "apply", str(wrong))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "wrong.yaml, airflow.pools, entry 1" in done.stderr
    assert "pool_slot" in done.stderr
    assert "Traceback" not in done.stderr
    assert airflow.api.get("/api/v2/pools/it_wrong").status_code == 404
