"""The listener in docs/sep/listeners.md is one: its code runs, and its project declares it."""

from __future__ import annotations

import re
import struct
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from rtolap.model.yaml_files import read_definitions
from rtolap.sep.delivery.listener import EventGroup
from rtolap.sep.events.edit_batch import CellType
from rtolap.sep.listeners.callable import LISTENERS, CallableListener

from tests.support.pages.texts import text_of
from tests.support.sep.batches import Cell, Event, batch_of

ROOT = Path(__file__).resolve().parents[3]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text_of("sep"), re.S)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The distribution as `pip install` leaves it: the module, and the entry point in its metadata."""
    (code,), (project,) = blocks("python"), blocks("toml")
    declared = tomllib.loads(project)["project"]
    (module,) = tomllib.loads(project)["tool"]["setuptools"]["py-modules"]
    (tmp_path / f"{module}.py").write_text(code)
    metadata = tmp_path / "mail_orders-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {declared['name']}\nVersion: {declared['version']}\n")
    lines = [f"{name} = {place}" for name, place in declared["entry-points"][LISTENERS].items()]
    (metadata / "entry_points.txt").write_text("\n".join((f"[{LISTENERS}]", *lines)))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__(module)
    del sys.modules[module]


def amount(value: float) -> tuple[Cell, ...]:
    return (Cell(b"amount", struct.pack(">d", value)),)


def test_the_listener_of_the_page_works_as_it_is_written(installed: ModuleType) -> None:
    events = [
        Event("r", 1, b"o1", cells=amount(12.5)),
        Event("r", 2, b"o2", cells=(Cell(b"customer", b"Ada"),)),
        Event("r", 3, b"o3", cells=amount(3.0)),
        Event("r", 4, b"o4", cells=(Cell(b"amount", b"", type=CellType.DELETE_COLUMN),)),
    ]
    group = EventGroup(
        batch=batch_of(events),
        late=np.array([False, False, True, False]),
        singly=np.zeros(4, np.bool_),
        deadlines_s=np.full(4, np.inf),
        commit=lambda delivered, columns: None,
        edits=lambda delivered: [],
        noted=lambda delivered: None,
    )
    listener = CallableListener.load("mail")
    outcome = listener.deliver(group)
    listener.close()
    assert outcome.delivered.all()
    assert installed.SENT == ["order o1: 12.50"]


def test_the_example_follows_the_hbase_of_the_settings() -> None:
    (example,) = read_definitions(ROOT / "include" / "sep").subscriptions.values()
    at = example.at("h1:4181,h2:4181/other").source
    assert (at.zookeeper, at.parent) == ("h1:4181,h2:4181", "/other")
    own = example.at("h1:4181/other")
    assert own.at("h3:1/third") == own
