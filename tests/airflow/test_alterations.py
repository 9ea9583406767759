"""A change of a cube in Airflow, with a coordinator on memory stores: planned, approved, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.alterations import (
    NAMES_MAX,
    AlterCubeOperator,
    PlanAlterationOperator,
    alteration_text,
)
from rtolap.base.errors import Refused
from rtolap.metadata.records import WatermarkRecord
from rtolap.protocols.coordinator.messages import Alteration

from tests.support.cubes.coordinator_harness import HOUR_MS, NAME, Cluster

CONTEXT: Any = {}
APPROVED = {"chosen_options": ["Approve"], "responded_by_user": {"id": "ann", "name": "ann"}}
REJECTED = {**APPROVED, "chosen_options": ["Reject"]}
DEFINITION = """\
kind: table
name: clicks
topic: clicks
time: {column: at}
columns:
  - {name: at, type: bigint}
  - {name: page, type: string}
  - {name: price, type: "decimal(10,2)"}
  - {name: country, type: string}
---
kind: cube
name: clicks_by_page
table: clicks
dimensions: [page, country]
measures:
  - {function: count}
  - {function: sum, column: price}
segment: {window: 1h}
retention: {after: 10h}
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "store")
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # a task closes what it opens
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: cluster.client)
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path / "include"))
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "clicks.yaml").write_text(DEFINITION)
    cluster.enabled()
    cluster.report()
    yield cluster
    cluster.close()


def planned(file: str = "clicks.yaml", **more: Any) -> dict[str, Any]:
    plan: dict[str, Any] = PlanAlterationOperator(task_id="plan", cube=NAME, file=file, **more).execute(
        CONTEXT
    )
    return plan


def alter(plan: Any, answer: Any = APPROVED) -> dict[str, Any]:
    done: dict[str, Any] = AlterCubeOperator(task_id="alter", cube=NAME, planned=plan, answer=answer).execute(
        CONTEXT
    )
    return done


def test_a_change_is_planned_approved_and_made_once(cluster: Cluster) -> None:
    plan = planned(renamed="{}")
    assert "- the table gets: country" in plan["text"]
    assert "- older events do not have: country" in plan["text"]
    assert f"- {NAME}_r2 holds the events from 1970-01-01T00:00:00+00:00 on, or" in plan["text"]
    assert cluster.metadata.cubes() == (NAME,), "a plan changes nothing"
    done = alter(plan)
    assert (done["applied"], done["revision"]) == (True, f"{NAME}_r2")
    again = alter(plan)
    assert again["applied"] is False, "a lost try is found"
    assert cluster.metadata.cubes() == (NAME, f"{NAME}_r2")
    with pytest.raises(AirflowSkipException, match="has this definition already"):
        planned()


def test_the_form_says_where_older_events_come_from(cluster: Cluster) -> None:
    record = cluster.closed(2)
    cluster.client.promote(NAME, record.name, cluster.build(record.name))
    says = "- older events are filled in from 1970-01-01T02:00:00+00:00 on, by "
    assert f"{says}the topic" in planned(older="fill")["text"]
    cluster.topics.logs["clicks"][1] = (11, 1000)
    assert f"{says}batches" in planned(older="fill")["text"]
    assert alter(planned(older="fill"))["applied"]
    revision = cluster.metadata.cube(f"{NAME}_r2").revision
    assert revision is not None
    assert revision.fills_from_ms == record.start_ms


def test_nothing_changes_before_somebody_has_approved_it(cluster: Cluster) -> None:
    plan = planned()
    for answer in (REJECTED, {}, {**APPROVED, "responded_by_user": None}):
        with pytest.raises(AirflowFailException, match="nobody has approved"):
            alter(plan, answer)
    assert cluster.metadata.cubes() == (NAME,)


def test_segments_are_dropped_only_where_the_approved_plan_said_so(cluster: Cluster, tmp_path: Path) -> None:
    text = DEFINITION.replace("[page, country]", "[page]").replace("after: 10h", "after: 5h")
    (tmp_path / "include" / "clicks.yaml").write_text(text)
    harmless = planned()
    assert "by the next retention" not in harmless["text"]
    first = cluster.closed(0).name
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(8 * HOUR_MS))
    with pytest.raises(Refused, match="drops 1 segments for good"):
        alter(harmless)
    plan = planned()
    assert f"dropped for good by the next retention**: {first}" in plan["text"]
    assert alter(plan)["applied"]


@pytest.mark.parametrize("file", ["../secret.yaml", "/etc/passwd", "nothing.yaml"])
def test_a_file_outside_of_the_definitions_fails_the_task(cluster: Cluster, file: str) -> None:
    with pytest.raises(AirflowFailException, match="not a file or folder below include"):
        planned(file)


def test_a_file_without_the_cube_names_those_that_it_has(cluster: Cluster, tmp_path: Path) -> None:
    other = DEFINITION.replace("name: clicks_by_page", "name: others")
    (tmp_path / "include" / "other.yaml").write_text(other)
    with pytest.raises(AirflowFailException, match=f"no cube {NAME}, but others"):
        planned("other.yaml")


def test_the_form_names_some_of_many() -> None:
    names = tuple(f"c{number}" for number in range(NAMES_MAX + 5))
    text = alteration_text(Alteration(cube="c", changes=(), gone_columns=names))
    assert text.endswith("and 5 more")
    assert f"c{NAMES_MAX}" not in text
