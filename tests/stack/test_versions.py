"""A `stack.json` of another version: told plainly, stopped all the same, never a KeyError."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import psutil
import pytest
from rtolap.base.errors import Corrupted, Refused
from rtolap.cli.local.running_stack import adopt_running_stack
from rtolap.stack.components import COMPONENTS
from rtolap.stack.layout import DEFAULT_DIR, StackLayout
from rtolap.stack.lifecycle import Stack
from rtolap.stack.pids import PidRecord
from rtolap.stack.secrets import ensure_secrets
from rtolap.stack.state import COMPONENT_NAMES, DEFAULT_PORTS, StackState, adapt, load_state, save_state

OLD_PORTS = {"zk": 2181, **{name: port for name, port in DEFAULT_PORTS.items() if name != "zookeeper"}}
OLD = StackState(OLD_PORTS, ("zk", "kafka"), {"RTOLAP_KAFKA": "127.0.0.1:9092"})
NOTHING = lambda *_: None  # noqa: E731


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    layout = StackLayout(tmp_path / "stack")
    ensure_secrets(layout)
    save_state(layout, OLD)
    return Stack(layout)


def _runs(stack: Stack, name: str) -> Path:
    """As if this very process were that part."""
    file = stack.layout.pid_file(name)
    file.parent.mkdir(parents=True)
    me = psutil.Process()
    file.write_bytes(msgspec.json.encode(PidRecord(me.pid, me.create_time())))
    return file


def test_what_differs_is_named_and_what_is_known_is_kept() -> None:
    state, differences = adapt(OLD)
    assert differences == ("no port zookeeper", "port zk", "component zk")
    assert state.ports == DEFAULT_PORTS
    assert state.components == ("kafka",)
    assert adapt(state) == (state, ())


def test_a_running_stack_of_another_version_is_told_from_a_broken_one(stack: Stack) -> None:
    _runs(stack, "kafka")
    for use in (stack.status, lambda: stack.up(["kafka"], {}, NOTHING)):
        with pytest.raises(Refused, match=r"another version.*no port zookeeper.*rtolap stack down"):
            use()
    assert load_state(stack.layout) == OLD


def test_a_part_that_this_version_does_not_know_counts_as_running_too(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[object] = [os.getpid()]
    monkeypatch.setattr("rtolap.stack.lifecycle.marked_processes", lambda layout: marked)
    with pytest.raises(Refused, match="another version"):
        stack.status()
    marked.clear()
    assert [(part.name, part.state) for part in stack.status()] == [("kafka", "stopped")]


def test_a_stopped_stack_of_another_version_can_be_looked_at_and_stopped_again(stack: Stack) -> None:
    assert [name for name, _ in stack.log_paths(None)] == ["kafka"]
    assert stack.down(NOTHING) == 0


def test_its_settings_are_not_taken_for_ones_of_this_version(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.layout.root.rename(stack.layout.root.with_name(DEFAULT_DIR))
    monkeypatch.chdir(stack.layout.root.parent)
    with pytest.raises(Refused, match="another version"):
        adopt_running_stack({})
    given = {"RTOLAP_KAFKA": "elsewhere:9092"}  # who says where the cluster is does not ask the stack
    adopt_running_stack(given)
    assert given == {"RTOLAP_KAFKA": "elsewhere:9092"}


def test_the_names_are_those_of_the_components() -> None:
    assert tuple(COMPONENTS) == COMPONENT_NAMES


def test_a_file_that_is_no_state_is_named(stack: Stack) -> None:
    for text in ("{", json.dumps({"ports": {"kafka": "9092"}, "components": [], "settings": {}})):
        stack.layout.state_file.write_text(text)
        with pytest.raises(Corrupted, match=r"stack\.json"):
            stack.status()
