"""`rtolap fleet join` knows the machine of a broker that has registered."""

from __future__ import annotations

from typing import Any

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.fleet.operations.brokers import OpenedBrokers

from tests.support.fleet.hand_made import hand_made


def test_the_machine_of_a_broker_that_has_registered_is_known_and_of_another_it_is_asked() -> None:
    operations: Any = None
    opened = OpenedBrokers(hand_made({1: None, 2: None}, {"t": [[1]]}), operations)
    assert opened.host_of(2) == "kafka-2"
    with pytest.raises(DefinitionError, match=r"broker 3 has not registered.*--host"):
        opened.host_of(3)
