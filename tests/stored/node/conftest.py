"""Three nodes that keep both tablets of a small table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.protocols.storage.messages import CreateTablets

from tests.support.stored.storage_nodes import InProcessNodes
from tests.support.stored.storage_rows import SCHEMA, tablet

NODES = ("a", "b", "c")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[InProcessNodes]:
    found = InProcessNodes(tmp_path, NODES)
    for node in found.nodes.values():
        node.create(CreateTablets((tablet(0), tablet(1)), SCHEMA))
    yield found
    found.close()
