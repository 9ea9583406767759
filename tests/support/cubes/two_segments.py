"""A cluster with events of two segments: ten events a partition of the first, five of the second."""

from __future__ import annotations

import json
from pathlib import Path

from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.metadata.records import SegmentRecord

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.stepped_receiver import Receiver


class TwoSegments:
    def __init__(self, folder: Path) -> None:
        settings = ReceiverSettings(disk_free_bytes_min=0, retry_s=0.01)
        self.cluster = Cluster(small_schema(), folder, settings, start_ms=START_MS)
        self.receivers = {receiver.name: receiver for receiver in self.cluster.receivers}
        for partition in self.cluster.log:
            self.send(partition, START_MS, 10)
            self.send(partition, START_MS + WINDOW_MS, 5)

    def send(self, partition: int, at_ms: int, count: int) -> None:
        body = json.dumps({"ts": at_ms, "kind": "a", "place": 1, "amount": 1}).encode()
        for _ in range(count):
            self.cluster.produce(partition, body, None)

    @property
    def records(self) -> list[SegmentRecord]:
        return list(self.cluster.records().values())

    def read(self, receiver: Receiver) -> None:
        receiver.look()
        receiver.consume_all()
