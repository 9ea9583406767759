"""One topic that cannot be helped does not keep the others from it: it is named, and the exit code tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, ImpossiblePlan, NotYet
from rtolap.cli.fleet.commands import app
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.plan import Plan
from rtolap.fleet.planning.plan_file import load_plan, plan_from, plan_json
from rtolap.fleet.planning.repairs import plan_racks
from rtolap.fleet.snapshot.file import save
from rtolap.fleet.snapshot.model import FleetSnapshot
from typer.testing import CliRunner

from tests.support.fleet.hand_made import hand_made

RACKS = {1: "a", 2: "b", 3: "a", 4: "b", 5: "c"}


def _replicas(plan: Plan) -> dict[str, list[int]]:
    first, brokers = plan.after.first, plan.after.brokers.tolist()
    return {
        f"{plan.topics[topic]}-{number}": brokers[first[row] : first[row + 1]]
        for row, (topic, number) in enumerate(
            zip(plan.partition_topics.tolist(), plan.partition_numbers.tolist(), strict=True)
        )
    }


def _left_out(plan: Plan) -> dict[str, str]:
    return {each.name: each.reason for each in plan.left_out}


def test_racks_are_repaired_but_for_what_has_too_many_replicas_moves_already_or_has_no_leader() -> None:
    fleet = hand_made(
        RACKS,
        {"fine": [[1, 3]], "lost": [[1, 3]], "many": [[1, 2, 3, 4]], "moving": [[2, 4]]},
        removing=[("moving", 0, 4)],
    )
    leaders = fleet.partitions.leaders.copy()
    leaders[1] = -1
    fleet = replace(fleet, partitions=replace(fleet.partitions, leaders=leaders))
    plan = plan_racks(fleet)
    assert set(_replicas(plan)) == {"fine-0"}
    told = _left_out(plan)
    assert set(told) == {"lost-0", "many-0", "moving-0"}
    assert "at most 3" in told["many-0"]
    assert "no leader" in told["lost-0"]
    assert "being moved already" in told["moving-0"]
    assert any("Left out" in sentence and "lost-0" in sentence for sentence in plan.why)
    assert plan_from(plan_json(plan)).left_out == plan.left_out


def test_a_rack_repair_that_finds_no_room_for_one_repairs_the_others() -> None:
    fleet = hand_made(RACKS, {"big": [[1, 3]], "small": [[1, 3]]})
    sizes = np.array([300, 300, 10, 10])
    fleet = replace(fleet, replicas=replace(fleet.replicas, size_bytes=sizes))
    used = np.array([310, 700, 310, 700, 700])
    fleet = replace(fleet, log_dirs=replace(fleet.log_dirs, usable_bytes=1000 - used))
    plan = plan_racks(fleet)
    assert set(_replicas(plan)) == {"small-0"}
    assert "would be above 90% with it" in _left_out(plan)["big-0"]
    assert plan.bounds.after_bytes == 300


def test_factors_are_raised_of_every_topic_that_can_have_them_and_of_none_by_half() -> None:
    fleet = hand_made(
        RACKS,
        {"fine": [[1, 2], [3, 4]], "half": [[1, 2], [1, 4]], "wide": [[1, 2, 3, 4]]},
    )
    sizes = np.where(np.isin(fleet.replicas.partitions, [3]), 950, 1)  # of half-1: fits nowhere
    fleet = replace(fleet, replicas=replace(fleet.replicas, size_bytes=sizes))
    plan = plan_factor(fleet, ["fine", "half", "wide"], 3)
    assert set(_replicas(plan)) == {"fine-0", "fine-1"}
    told = _left_out(plan)
    assert set(told) == {"half", "wide"}
    assert "no place for a replica of half-1" in told["half"]
    assert "4 replicas or more" in told["wide"]
    with pytest.raises(ImpossiblePlan, match="half-1"):
        plan_factor(fleet, ["half"], 3)
    with pytest.raises(DefinitionError, match="4 replicas or more"):
        plan_factor(fleet, ["wide"], 3)


def test_where_everything_is_left_out_the_plan_is_an_error() -> None:
    with pytest.raises(NotYet, match="being moved already"):
        plan_racks(hand_made(RACKS, {"moving": [[2, 4]]}, removing=[("moving", 0, 4)]))


def _saved(tmp_path: Path, fleet: FleetSnapshot) -> str:
    save(fleet, tmp_path / "fleet")
    return str(tmp_path / "fleet")


@pytest.mark.parametrize(
    ("command", "left_out"),
    [(["rack"], "many-0"), (["factor", "3", "--topic", "fine", "--topic", "many"], "many")],
)
def test_a_command_that_leaves_something_out_says_so_and_ends_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], left_out: str
) -> None:
    monkeypatch.setenv("RTOLAP_INCLUDE_DIR", str(tmp_path / "none"))
    file = _saved(tmp_path, hand_made(RACKS, {"fine": [[1, 3]], "many": [[1, 2, 3, 4]]}))
    out = tmp_path / "plan.json"
    arguments = ["plan", *command, "--snapshot", file, "--out", str(out)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 3, done.output
    assert f"left out: {left_out}" in done.output
    told = CliRunner().invoke(app, [*arguments, "--json"])
    assert told.exit_code == 3
    assert [each["name"] for each in json.loads(told.stdout)["left_out"]] == [left_out]
    assert [each.name for each in load_plan(out).left_out] == [left_out]
