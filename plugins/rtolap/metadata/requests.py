"""Requests that have dropped something: stored with what they did, so that a repeat drops nothing else.

The note is one commit with the step that decides: the one that takes the definition away. A crash before it
leaves a request that is carried out again; after it, one that is answered. A refusal is noted by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, NotFound, Refused, from_dict
from rtolap.metadata import codec, paths
from rtolap.metadata.store import Create, Delete, MetadataStore, Operation
from rtolap.metadata.updates import create_missing, read, retried

RETENTION_MS = 48 * 3_600_000  # as frontends keep the changes of stored tables
_FORGOTTEN_MAX = 200  # at a time
# What the present state or the request itself forbids; what clients repeat by themselves is no answer.
_REFUSALS = (DefinitionError, NotFound, Refused)


class RequestRecord(msgspec.Struct, frozen=True):
    """A request that was answered.

    Attributes:
        refused: the error, as `RtolapError.to_dict`; None where the request was executed.
    """

    fingerprint: str
    answered_at_ms: int
    refused: dict[str, Any] | None = None


class Note:
    """The record that goes along with the deciding commit of a change."""

    def __init__(self, store: MetadataStore, path: str, record: RequestRecord) -> None:
        self._store, self._path, self._data = store, path, codec.encode(record)

    def stands(self) -> bool:
        """Return whether the change has been made: by an attempt whose answer was lost, or by another request
        of the id."""
        return self._store.get(self._path) is not None

    def operations(self) -> tuple[Operation, ...]:
        return (Create(self._path, self._data),)


@retried
def remove_all(store: MetadataStore, find: Callable[[], Iterable[str]], note: Note | None = None) -> None:
    """Remove the nodes that `find` names, children first, in one commit with the `note`; what its repetition
    finds after a lost answer may be of another request already."""
    present = [path for path in find() if store.get(path) is not None]
    if present and (note is None or not note.stands()):
        store.commit([*(Delete(path) for path in present), *(() if note is None else note.operations())])


class Requests:
    """Requests that carry an id. They are thread-safe."""

    def __init__(self, store: MetadataStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._one_at_a_time = Lock()

    def once(
        self, request_id: str | None, content: tuple[str, ...], work: Callable[[Note | None], None]
    ) -> None:
        """Do the work, or answer a repeated request as it was answered before.

        `content` is all that the request says. Without an id, every call does the work. Raises Refused where
        the id belongs to a request of other content.
        """
        if request_id is None:
            work(None)
            return
        fingerprint = sha256(msgspec.json.encode(content)).hexdigest()
        with self._one_at_a_time:  # a repeat is answered when all of the first one is over, its files too
            self._once(request_id, fingerprint, work)

    def _once(self, request_id: str, fingerprint: str, work: Callable[[Note | None], None]) -> None:
        if self._answered(request_id, fingerprint):
            return
        try:
            work(Note(self._store, paths.request(request_id), self._record(fingerprint)))
        except _REFUSALS as error:
            refused = msgspec.structs.replace(self._record(fingerprint), refused=error.to_dict())
            create_missing(self._store, paths.request(request_id), codec.encode(refused))
            self._answered(request_id, fingerprint)

    def forget(self) -> int:
        """Delete old notes, in bounded steps; their number."""
        before_ms = self._clock.now_ms() - RETENTION_MS
        forgotten = 0
        for name in self._store.children(paths.REQUESTS):
            record = read(self._store, paths.request(name), RequestRecord)
            if record is not None and record.answered_at_ms < before_ms and forgotten < _FORGOTTEN_MAX:
                self._delete(name)
                forgotten += 1
        return forgotten

    def _delete(self, name: str) -> None:
        remove_all(self._store, lambda: [paths.request(name)])

    def _answered(self, request_id: str, fingerprint: str) -> bool:
        """Return whether the request was answered. Raises the error that refused it, and Refused for another
        request's id."""
        record = read(self._store, paths.request(request_id), RequestRecord)
        if record is None:
            return False
        if record.fingerprint != fingerprint:
            raise Refused(
                f"request {request_id} has been another change", expected="an id of its own for each change"
            )
        if record.refused is not None:
            raise from_dict(record.refused)
        return True

    def _record(self, fingerprint: str) -> RequestRecord:
        return RequestRecord(fingerprint, self._clock.now_ms())
