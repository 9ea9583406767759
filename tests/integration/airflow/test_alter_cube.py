"""A cube gets a measure by the shipped DAG, as a person approves in Airflow's form; answers stay exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.airflow.questions import press, question
from tests.support.cubes.day_stream import DayStream

pytestmark = [pytest.mark.integration]

DAG_ID = "rtolap_alter_cube"
DEFINITION = """\
kind: table
name: {name}
topic: {name}
time: {{column: at, format: epoch_ms}}
columns:
  - {{name: at, type: bigint}}
  - {{name: shop, type: string}}
  - {{name: price, type: "decimal(12,2)"}}
---
kind: cube
name: {name}
table: {name}
dimensions: [shop]
time_dimensions: [day]
measures:
  - {{function: count}}
  - {{function: sum, column: price}}
  - {{function: max, column: price}}
segment: {{window: 1d}}
"""


def test_a_revision_follows_as_a_person_has_approved(
    airflow: Any, stream: DayStream, airflow_home: Path
) -> None:
    cube, client = stream.name, airflow.coordinator
    stream.send(1)
    before = airflow.until("an answer about all that was sent", stream.answer)
    assert before == stream.recount()
    file = f"{cube}.yaml"
    (airflow_home / "include" / file).write_text(DEFINITION.format(name=cube))
    run_id = airflow.trigger(DAG_ID, cube=cube, file=file)
    asked = question(airflow, DAG_ID, run_id, "approve")
    assert asked["subject"] == "Change a running cube?"
    assert "older events do not have: price__max" in asked["body"]
    assert client.cube(cube).revisions == (), "nothing changes before the answer"
    press(airflow, DAG_ID, run_id, "approve")
    airflow.until_run(DAG_ID, run_id)
    assert client.cube(cube).revisions == (f"{cube}_r2",)
    days = "SELECT day_start, COUNT(*), MAX(price) IS NULL FROM {} GROUP BY 1 ORDER BY 1"

    def counted() -> list[list[Any]] | None:
        rows: list[list[Any]] = airflow.sql(days.format(cube))["rows"]
        return rows if sum(row[1] for row in rows) == 200 else None

    stream.send(2)
    rows = airflow.until("all events of both days", counted)
    assert [row[1:] for row in rows] == [[100, True], [100, False]]
