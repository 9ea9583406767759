"""A cube's partitions move by the shipped DAG, as a person approves in Airflow's form, and move back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from rtolap.base.errors import Refused
from rtolap.protocols.coordinator.messages import DrainRequest

from tests.integration.airflow.browsing import picture
from tests.integration.airflow.questions import press, question
from tests.support.cubes.day_stream import PARTITIONS, DayStream
from tests.support.waiting import patience_s

pytestmark = [pytest.mark.integration]

DAG_ID = "rtolap_move_partitions"
SECOND, RECEIVER = "rs-moved", "moved0"


@pytest.fixture
def second_set(airflow: Any, receiver: None, tmp_path: Path) -> Iterator[str]:
    """Another replica set of one receiver, which is gone afterwards."""
    command = ["receiver", "serve", "--id", RECEIVER, "--replica-set", SECOND, "--port", "0"]
    with (tmp_path / "receiver.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rtolap.cli.main", *command, "--data-dir", str(tmp_path / RECEIVER)],
            env={**os.environ, **airflow.environment},
            stdout=log,
            stderr=log,
        )
    health = {RECEIVER: "DOWN"}

    def lives() -> bool | None:
        health.update({found.receiver_id: found.health for found in airflow.coordinator.receivers()})
        return True if health[RECEIVER] == "HEALTHY" else None

    try:
        airflow.until("second receiver", lives)
        yield SECOND
        airflow.coordinator.drain_replica_set(SECOND, DrainRequest())
    finally:
        process.terminate()
        process.wait(patience_s(60))

    def removed() -> bool | None:
        try:
            airflow.coordinator.remove_replica_set(SECOND)
        except Refused:  # its session has yet to expire
            return None
        return True

    airflow.until("removal of the second replica set", removed)


def answered(page: Page, waits: Locator, option: str) -> None:
    """Answer on the page, and wait until it says so."""
    waits.get_by_role("button", name=option).click()
    page.get_by_role("dialog").get_by_role("button", name="Answer").click()
    expect(page.get_by_text(re.compile(f"{option} is recorded, as the answer of ada"))).to_be_visible()
    expect(waits).to_have_count(0)


def test_partitions_move_and_move_back_as_a_person_has_approved(
    airflow: Any, stream: DayStream, second_set: str, sign_in: Callable[..., Page]
) -> None:
    cube, client = stream.name, airflow.coordinator
    stream.send(1)
    whole = tuple(range(PARTITIONS))
    first_set = next(iter(client.cube(cube).assignment))
    before = client.cube(cube)
    assert before.assignment == {first_set: whole}
    run_id = airflow.trigger(DAG_ID, cube=cube, by="count", over=[second_set])
    asked = question(airflow, DAG_ID, run_id, "approve")
    page = sign_in("ada", "?view=receivers")
    waits = page.get_by_role("article", name=asked["subject"])
    assert asked["subject"] == f"Move partitions of {cube}?"
    assert f"partition 0: {first_set} → {second_set}" in asked["body"]
    assert client.cube(cube).next_epoch is None, "nothing moves before the answer"
    plan = waits.get_by_role("table", name="Partitions before and after the move")
    all_of_it = ", ".join(map(str, whole))
    expect(plan.get_by_role("row", name=f"{first_set} {all_of_it}")).to_be_visible()
    expect(plan.get_by_role("row", name=f"{second_set} {all_of_it}")).to_be_visible()
    picture(page, "move")
    answered(page, waits, "Approve")
    back = f"Move the partitions of {cube} back?"
    assert question(airflow, DAG_ID, run_id, "approve_back")["subject"] == back
    moved = client.cube(cube)
    assert (moved.assignment, moved.assignment_epoch) == ({second_set: whole}, before.assignment_epoch + 1)
    stream.send(1)  # of the same day: no segment closes, and nothing is staged
    answered(page, page.get_by_role("article", name=back), "Undo the move")
    airflow.until_run(DAG_ID, run_id)
    assert client.cube(cube).assignment == {first_set: whole}
    assert airflow.until("an answer about all that was sent", stream.answer) == stream.recount()


def test_a_plan_that_is_rejected_moves_nothing(airflow: Any, stream: DayStream, second_set: str) -> None:
    before = airflow.coordinator.cube(stream.name)
    run_id = airflow.trigger(DAG_ID, cube=stream.name, by="count", over=[second_set])
    question(airflow, DAG_ID, run_id, "approve")
    press(airflow, DAG_ID, run_id, "approve", "Reject")
    airflow.until_run(DAG_ID, run_id)
    states = dict(airflow.states(DAG_ID, run_id))
    assert [states[task] for task in ("move", "stands", "back")] == ["skipped"] * 3
    after = airflow.coordinator.cube(stream.name)
    assert (after.assignment, after.assignment_epoch) == (before.assignment, before.assignment_epoch)
