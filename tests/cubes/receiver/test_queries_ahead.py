"""A query ahead of a move is answered out of the state that there is, or not at all."""

from __future__ import annotations

import time

import msgspec
import pytest
from rtolap.base.errors import Unavailable
from rtolap.cubes.receiver.process import ReceiverService
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.receiver.messages import HistorySnapshot, PartialQuery

from tests.support.cubes.metadata_contract import eventually

TIMEOUT_MS = 60_000
QUERY = PartialQuery("sales_by_kind", ("kind",), ("__rows",), HistorySnapshot(), timeout_ms=TIMEOUT_MS)


def test_it_does_not_wait_for_another_state(receivers: list[ReceiverService]) -> None:
    service = receivers[0]
    with ReceiverClient(f"127.0.0.1:{service.port}", "a-token-of-this-test") as client:

        def answers() -> bool:
            try:
                client.query(QUERY)
            except Unavailable:
                return False
            return True

        eventually(answers, "it answers")
        ahead = msgspec.structs.replace(QUERY, ahead=True)
        table, said = client.query(ahead)
        assert not table.num_rows
        assert said.positions == {0: 0}
        begun_s = time.monotonic()
        for lacking in (
            msgspec.structs.replace(ahead, at_least={0: 1}),
            msgspec.structs.replace(ahead, snapshot=HistorySnapshot(assignment_epoch=2)),
        ):
            with pytest.raises(Unavailable):
                client.query(lacking)
        assert time.monotonic() - begun_s < TIMEOUT_MS / 1000
