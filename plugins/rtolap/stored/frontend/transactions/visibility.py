"""Waiting until what is committed can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition

from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.metastore.records import TransactionState

_ASK_AGAIN_S = 0.25  # another front end may have published it: it cannot tell this one


class Visibility:
    """`publish` belongs to one thread; any number may `wait`. `wake`: have that thread publish now."""

    def __init__(self, manager: TransactionManager, publisher: Publisher) -> None:
        self._manager = manager
        self._publisher = publisher
        self._published = Condition()
        self.wake: Callable[[], object] = lambda: None

    def publish(self) -> None:
        """One round of the publisher."""
        if self._publisher.publish_committed():
            with self._published:
                self._published.notify_all()

    def wait(self, db: str, txn_id: int, timeout_s: float) -> bool:
        """Wait until a transaction is VISIBLE; return False after the time, when it will be later."""
        deadline_s = time.monotonic() + timeout_s
        self.wake()
        with self._published:  # what is published from now on is noticed, and what was before is asked for
            while self._manager.get(db, txn_id).state is not TransactionState.VISIBLE:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._published.wait(min(left_s, _ASK_AGAIN_S))
        return True
