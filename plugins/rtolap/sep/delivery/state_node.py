"""The state of delivery in ZooKeeper, where `rtolap sep describe` finds it while the process lives."""

from __future__ import annotations

import logging

import msgspec

from rtolap.base.errors import RtolapError
from rtolap.metadata.store import Create, Delete, MetadataStore, Put
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.state import DeliveryState, delivery_state

log = logging.getLogger(__name__)


class StateNode:
    """Not thread-safe. The node goes with the session of `store`."""

    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store, self._path = store, path
        self._published: bytes | None = None

    def publish(self, delivery: Delivery) -> None:
        """Write the state if it has changed. A write that the store refuses is tried again the next time."""
        data = msgspec.json.encode(delivery_state(delivery))
        if data == self._published:
            return
        try:
            node = self._store.get(self._path)
            if node is None or self._published is None:  # one of an earlier session goes with that
                remove = [] if node is None else [Delete(self._path, node.version)]
                self._store.commit([*remove, Create(self._path, data, ephemeral=True)])
            else:
                self._store.commit([Put(self._path, data, node.version)])
            self._published = data
        except RtolapError as error:
            log.info("the state of delivery is not shown: %s", error)


def read_state(store: MetadataStore, path: str) -> DeliveryState | None:
    """None where no process leads, or a later version has written what this one cannot read."""
    node = store.get(path)
    if node is None:
        return None
    try:
        return msgspec.json.decode(node.data, type=DeliveryState)
    except msgspec.DecodeError:
        return None
