"""The coordinators that live, as one of them sees them: the candidates of the election."""

from __future__ import annotations

from rtolap.metadata import paths
from rtolap.metadata.store import MetadataStore
from rtolap.metadata.updates import genuine


class LiveCoordinators:
    """`store` may read only what has changed: a view that is old for a moment delays moves of applications,
    and makes no mistake. `url`: the address of this coordinator."""

    def __init__(self, store: MetadataStore, url: str) -> None:
        self._store = store
        self.url = url

    def urls(self) -> frozenset[str]:
        """Return the addresses of all, and always of this one."""
        names = self._store.children(paths.ELECTION)
        nodes = genuine(names, lambda name: self._store.get(f"{paths.ELECTION}/{name}"))
        return frozenset({self.url, *(node.data.decode() for node in nodes.values() if node is not None)})
