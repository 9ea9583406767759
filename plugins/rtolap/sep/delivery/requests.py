"""The requests of commands to the process that delivers: a node each, deleted once the process has served it.

Only that process may write for a subscription, or for a share of one, so a command that wants something
delivered leaves it a note.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Literal

import msgspec

from rtolap.base.errors import Corrupted, NotFound, Refused, RtolapError
from rtolap.metadata.store import Create, Delete, MetadataStore
from rtolap.sep.delivery.delivery import Delivery

log = logging.getLogger(__name__)

ROWS_BYTES_MAX = 256 << 10  # of one request: a node holds 1 MB


class Request(msgspec.Struct, frozen=True):
    """A request of a command to the process that leads.

    Attributes:
        kind: `replay` delivers the dead letters of rows that are set apart, `replay_skipped` those of skipped
            events too; `read` reads rows of a table again.
        table: the table of `read`.
        rows: the rows of `read`.
    """

    kind: Literal["replay", "replay_skipped", "read"]
    table: str = ""
    rows: tuple[bytes, ...] = ()


_decoder = msgspec.json.Decoder(Request)


def post(store: MetadataStore, folder: str, request: Request) -> str:
    """Return the node that goes once it is done."""
    path = f"{folder}/{uuid.uuid4().hex}"
    store.commit([Create(path, msgspec.json.encode(request))])
    return path


def is_done(store: MetadataStore, path: str) -> bool:
    return store.get(path) is None


class RequestNodes:
    """The request nodes, read during a term of the leading process. Not thread-safe."""

    def __init__(self, store: MetadataStore, folder: str) -> None:
        self._store, self._folder = store, folder
        self._taken: set[str] = set()

    def take(self, hand_over: Callable[[Callable[[], None]], None], delivery: Delivery) -> None:
        """Hand over what is new. A failure is logged, and the node looked at again the next time."""
        try:
            for name in self._store.children(self._folder):
                if name not in self._taken:
                    self._taken.add(name)
                    hand_over(lambda name=name: self._perform(name, delivery))  # type: ignore[misc]
        except RtolapError as error:
            log.info("requests of commands are not looked at: %s", error)

    def _perform(self, name: str, delivery: Delivery) -> None:
        path = f"{self._folder}/{name}"
        try:
            node = self._store.get(path)
            if node is None:
                return
            try:
                perform(_decoded(path, node.data), delivery)
            except (Corrupted, Refused) as error:  # it never can be
                log.warning("a request is taken away: %s", error)
            self._store.commit([Delete(path, node.version)])
        except NotFound:
            return  # the command has given up, and taken it away
        except RtolapError:
            self._taken.discard(name)
            raise


def perform(request: Request, delivery: Delivery) -> None:
    """Perform a request. Raises Unavailable where it cannot be done now, and Refused where it never can."""
    match request.kind:
        case "replay":
            delivery.replay()
        case "replay_skipped":
            delivery.replay(skipped=True)
        case "read":
            delivery.read_again(request.table, request.rows)


def _decoded(path: str, data: bytes) -> Request:
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise Corrupted(f"the request {path} cannot be read", found=str(error)) from error
