"""A lasting watch made of one-shot ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class OneShotStore(Protocol):
    def arm(self, path: str, callback: Callable[[object], None]) -> None:
        """Have `callback` called, once, when the node's data, existence or children change."""
        ...

    def wake(self, watch: OneShotWatch) -> None:
        """Run `watch.arm` soon, on the store's own thread."""
        ...

    def forget(self, watch: OneShotWatch) -> None: ...


class OneShotWatch:
    """Implements `store.Watch`. Set again before it calls: a reader that reads on the call misses nothing."""

    def __init__(self, store: OneShotStore, path: str, changed: Callable[[], None]) -> None:
        self._store = store
        self._path = path
        self._changed = changed
        self._stopped = False

    def arm(self) -> None:
        if self._stopped:
            return
        self._store.arm(self._path, self._event)
        self._changed()

    def stop(self) -> None:
        self._stopped = True
        self._store.forget(self)

    def _event(self, event: object) -> None:
        if not self._stopped:
            self._store.wake(self)
