"""Read–change–commit of single records, with bounded retries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Generic, NamedTuple, ParamSpec, TypeVar

import msgspec
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from rtolap.base.errors import CommitConflict, CommitUnknown, Corrupted, Forged, NotFound
from rtolap.metadata import codec
from rtolap.metadata.store import Create, Delete, MetadataStore, Operation, Put, Versioned

log = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)
C = TypeVar("C", bound=msgspec.Struct | None)
P = ParamSpec("P")
R = TypeVar("R")

# Ten services that change the segments of one cube at once each lose most rounds: 30 short ones suffice.
ATTEMPTS_MAX = 30
_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.2
_WARNINGS_MAX = 1000


def retried(attempt: Callable[P, R]) -> Callable[P, R]:
    """Repeat a function that reads, decides and commits, until its commit is known to stand.

    After CommitUnknown the repetition is the read-back: an attempt that finds its own change already there
    has nothing left to commit. So the function has to be idempotent. The last error is raised after
    `ATTEMPTS_MAX` rounds.
    """

    @wraps(attempt)
    def rounds(*args: P.args, **kwargs: P.kwargs) -> R:
        repeated = Retrying(
            retry=retry_if_exception_type((CommitConflict, CommitUnknown)),
            stop=stop_after_attempt(ATTEMPTS_MAX),
            wait=wait_random_exponential(multiplier=_PAUSE_S, max=_PAUSE_MAX_S),
            reraise=True,
        )
        return repeated(attempt, *args, **kwargs)

    return rounds


def read(store: MetadataStore, path: str, kind: type[S]) -> S | None:
    node = store.get(path)
    return None if node is None else codec.decode(node.data, kind, path)


def standing(store: MetadataStore, path: str, kind: type[S], subject: str) -> tuple[S, Versioned]:
    """Return the record with its node. Raises NotFound, by the name of its subject."""
    node = store.get(path)
    if node is None:
        raise NotFound(f"{subject} does not exist")
    return codec.decode(node.data, kind, path), node


class Read(NamedTuple, Generic[R]):
    """What was read of several names that are listed. Names that are gone meanwhile are in neither.

    Attributes:
        found: what each record says.
        unreadable: why a record that is there cannot be read, because it is forged or damaged.
    """

    found: dict[str, R]
    unreadable: dict[str, Corrupted]


def read_each(names: Iterable[str], reader: Callable[[str], R | None]) -> Read[R]:
    """Read each name apart: one whose record is forged or damaged keeps nobody from the others.

    Its record is there all the same. Who deletes or allows something because nothing is there looks at
    `unreadable`, or reads so that it is raised.
    """
    read_now = Read[R]({}, {})
    for name in names:
        try:
            record = reader(name)
        except NotFound:
            continue
        except Corrupted as error:
            read_now.unreadable[name] = error
            if not isinstance(error, Forged):  # those the store has logged
                _warn_once(str(error))
            continue
        if record is not None:
            read_now.found[name] = record
    return read_now


@lru_cache(maxsize=_WARNINGS_MAX)
def _warn_once(unreadable: str) -> None:
    log.warning("left out: %s", unreadable)


def put_or_create(path: str, data: bytes, node: Versioned | None) -> Operation:
    return Create(path, data) if node is None else Put(path, data, node.version)


@retried
def create_missing(store: MetadataStore, path: str, data: bytes, *, ephemeral: bool = False) -> None:
    """Make a node, unless there is one, whatever is in it."""
    if store.get(path) is None:
        store.commit([Create(path, data, ephemeral=ephemeral)])


@retried
def replace(store: MetadataStore, path: str, record: msgspec.Struct) -> None:
    """Write the record, whatever stands there, also what somebody has forged. An equal one writes nothing."""
    data = codec.encode(record)
    try:
        node = store.get(path)
    except Forged as forged:
        node = Versioned(b"", forged.version)
    if node is None or node.data != data:
        store.commit([put_or_create(path, data, node)])


@retried
def update(
    store: MetadataStore,
    path: str,
    kind: type[S],
    change: Callable[[S | None], C],
    also: Callable[[], Sequence[Operation]] = tuple,
) -> C:
    """Replace the record by `change(record)`; None removes it; an equal one writes nothing.

    `also` gives operations that are committed together with the change; it is called again each round.
    """
    node = store.get(path)
    before = None if node is None else codec.decode(node.data, kind, path)
    after = change(before)
    if after is not None and after != before:
        store.commit([put_or_create(path, codec.encode(after), node), *also()])
    elif after is None and node is not None:
        store.commit([Delete(path, node.version), *also()])
    return after


def change(
    store: MetadataStore,
    path: str,
    kind: type[S],
    changed: Callable[[S], S],
    subject: str,
    also: Callable[[], Sequence[Operation]] = tuple,
) -> S:
    """Do as `update` with a record that has to be there. Raises NotFound, by the name of its subject."""

    def of_standing(record: S | None) -> S:
        if record is None:
            raise NotFound(f"{subject} does not exist")
        return changed(record)

    return update(store, path, kind, of_standing, also)
