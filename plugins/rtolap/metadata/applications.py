"""Applications as they are stored: definition, published state, approvals, and the hosts that count.

The hosts of a source are one node: names a line, compressed; who is leaving, as packed entries. A hundred
thousand names fit into it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from rtolap.base.errors import Corrupted, NotFound, NotOwner, Refused
from rtolap.metadata import codec, paths
from rtolap.metadata.records import (
    ApplicationState,
    Approval,
    Approvals,
    LeavingHost,
    LevelState,
    Owner,
    SourceHosts,
)
from rtolap.metadata.requests import Note, remove_all
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation, Put
from rtolap.metadata.updates import change, read, retried, standing, update
from rtolap.model.application import Application, refuse_unsafe_change

BYTES_MAX = 700_000  # a node holds 1 MB, and base64 adds a third
_LEAVING = msgspec.msgpack.Decoder(tuple[LeavingHost, ...])


@dataclass(frozen=True, slots=True)
class ListedHosts:
    """The stored hosts of an application.

    Attributes:
        epoch: 0 while no list was stored.
        names: all hosts that count.
        leaving: the hosts that are leaving, with the time until which they count.
    """

    epoch: int = 0
    names: tuple[str, ...] = ()
    leaving: tuple[LeavingHost, ...] = ()


def packed(hosts: ListedHosts, where: str) -> SourceHosts:
    """Return the hosts as packed bytes. Raises Refused if they are too many for one node. If only the leaving
    hosts are too many, it leaves their names out: a next leader sees them as listed, and waits for longer."""
    names = zlib.compress("\n".join(hosts.names).encode(), 6)
    if len(names) > BYTES_MAX:
        raise Refused(
            f"the host list of {where} is too large",
            expected=f"at most {BYTES_MAX} bytes compressed",
            found=len(names),
            action="split the source",
        )
    leaving = zlib.compress(msgspec.msgpack.encode(hosts.leaving), 6) if hosts.leaving else b""
    return SourceHosts(hosts.epoch, names, leaving if len(names) + len(leaving) <= BYTES_MAX else b"")


def unpacked(record: SourceHosts | None, where: str) -> ListedHosts:
    if record is None:
        return ListedHosts()
    try:
        text = zlib.decompress(record.names).decode()
        leaving = _LEAVING.decode(zlib.decompress(record.leaving)) if record.leaving else ()
    except (zlib.error, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise Corrupted(
            f"the stored host list of {where} cannot be read",
            found=str(error),
            action="restore the node from a backup, or remove it and let the hosts register again",
        ) from error
    names = tuple(text.split("\n")) if text else ()
    if any(host.host >= len(names) for host in leaving):
        raise Corrupted(f"the stored host list of {where} names fewer hosts than are leaving")
    return ListedHosts(record.epoch, names, leaving)


class ApplicationRecords:
    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def names(self) -> tuple[str, ...]:
        names = self.store.children(paths.APPLICATIONS)
        return tuple(name for name in names if self.store.get(paths.application_definition(name)) is not None)

    def definition(self, name: str) -> Application:
        path = paths.application_definition(name)
        return standing(self.store, path, Application, f"application {name}")[0]

    @retried
    def create(self, application: Application) -> None:
        """Create an application. An equal one changes nothing; Refused if there is another one."""
        path = paths.application_definition(application.name)
        present = read(self.store, path, Application)
        if present is None:
            state = paths.application_state(application.name)
            self.store.commit(
                [
                    Create(path, codec.encode(application)),
                    Create(state, codec.encode(ApplicationState())),
                ]
            )
        elif present != application:
            raise Refused(
                f"application {application.name} exists with another definition",
                action="change it (PUT, or rtolap create --change), or choose another name",
            )

    def drop(self, name: str, note: Note | None = None) -> None:
        """Remove an application in one commit, with the `note`, so that a later application of the name finds
        nothing of it."""
        self.definition(name)

        def nodes() -> list[str]:
            hosts = paths.application_hosts_all(name)
            return [
                *(f"{hosts}/{level}" for level in self.store.children(hosts)),
                hosts,
                paths.application_approvals(name),
                paths.application_state(name),
                paths.application_definition(name),
                paths.application(name),
            ]

        remove_all(self.store, nodes, note)

    @retried
    def change(self, application: Application) -> None:
        """Replace the definition of an application, and end the epoch of the leader that runs the former one.

        Published watermarks stay, so that none falls. A removed level takes its watermarks, hosts, units and
        generations with it. Raises Refused and NotFound. Repeating it changes nothing.
        """
        name = application.name
        path, state_path = paths.application_definition(name), paths.application_state(name)
        node, state_node = self.store.get(path), self.store.get(state_path)
        if node is None or state_node is None:
            raise NotFound(f"application {name} does not exist")
        before = codec.decode(node.data, Application, path)
        if before == application:
            return
        refuse_unsafe_change(before, application)
        state = codec.decode(state_node.data, ApplicationState, state_path)
        gone = {declared.name for declared in before.levels} - {level.name for level in application.levels}
        hosts = [paths.application_hosts(name, level) for level in sorted(gone)]
        self.store.commit(
            [
                Put(path, codec.encode(application), node.version),
                Put(state_path, codec.encode(without(state, gone)), state_node.version),
                *(Delete(node_path) for node_path in hosts if self.store.get(node_path) is not None),
            ]
        )

    # -- what was published -----------------------------------------------------------------------------

    def begin(self, name: str, now_ms: int, owner: Owner | None = None) -> ApplicationState:
        """Begin an epoch of `owner`. It is written before anything is answered in it.

        Raises NotOwner while the node of another owner stands, and NotFound.
        """
        epochs: list[int] = []

        def begun(state: ApplicationState) -> ApplicationState:
            if state.epoch in epochs:
                return state  # the answer to our own commit was lost
            if state.owner != owner and (standing := self.standing_owner(state)) is not None:
                raise NotOwner(
                    f"application {name} is run by coordinator {standing.url}", leader_url=standing.url
                )
            epochs.append(max(state.epoch + 1, now_ms))
            return msgspec.structs.replace(state, epoch=epochs[-1], owner=owner)

        return self._change_state(name, begun)

    def state(self, name: str) -> ApplicationState | None:
        return read(self.store, paths.application_state(name), ApplicationState)

    def standing_owner(self, state: ApplicationState) -> Owner | None:
        """Return the owner whose node stands. A node that is gone never returns, so None is final for it."""
        owner = state.owner
        return owner if owner is not None and self.store.get(owner.node) is not None else None

    def require_epoch(self, name: str, epoch: int) -> None:
        """Raises NotOwner if a later epoch has begun, and NotFound."""
        self._in_epoch(name, epoch)

    def give_up(self, name: str, epoch: int) -> None:
        """Leave the application to others. The epoch is over: nothing of it is persisted from here on."""

        def left(state: ApplicationState | None) -> ApplicationState | None:
            if state is None or state.epoch != epoch:
                return state  # dropped, or over already
            return msgspec.structs.replace(state, epoch=epoch + 1, owner=None)

        update(self.store, paths.application_state(name), ApplicationState, left)

    def publish(self, name: str, wanted: ApplicationState) -> ApplicationState:
        """Persist; no watermark becomes smaller. NotOwner if a later epoch has begun. Returns what
        stands."""

        def advanced(state: ApplicationState) -> ApplicationState:
            if state.epoch != wanted.epoch:
                raise _over(name, wanted.epoch)
            return never_smaller(state, wanted)

        return self._change_state(name, advanced)

    def _change_state(
        self, name: str, changed: Callable[[ApplicationState], ApplicationState]
    ) -> ApplicationState:
        path = paths.application_state(name)
        return change(self.store, path, ApplicationState, changed, f"application {name}")

    # -- approvals --------------------------------------------------------------------------------------

    def approvals(self, name: str) -> tuple[Approval, ...]:
        record = read(self.store, paths.application_approvals(name), Approvals)
        return () if record is None else record.approvals

    def approve(self, name: str, epoch: int, approval: Approval) -> tuple[Approval, ...]:
        """Approve a window. Raises NotOwner if an epoch after `epoch` has begun: its owner would not know
        of the approval."""

        def approved(record: Approvals | None) -> Approvals:
            return Approvals(with_approval(() if record is None else record.approvals, approval))

        path = paths.application_approvals(name)
        after = update(self.store, path, Approvals, approved, lambda: (self._in_epoch(name, epoch),))
        return after.approvals

    # -- hosts ------------------------------------------------------------------------------------------

    def hosts(self, name: str, level: str) -> ListedHosts:
        record = read(self.store, paths.application_hosts(name, level), SourceHosts)
        return unpacked(record, f"{name}/{level}")

    def keep_hosts(self, name: str, level: str, epoch: int, hosts: ListedHosts) -> None:
        """Store the hosts of a level. Raises Refused if they are too many for one node; the former ones then
        stay. Raises NotOwner if an epoch of the application after `epoch` has begun: another list may
        have been read since."""
        record = packed(hosts, f"{name}/{level}")
        path = paths.application_hosts(name, level)
        update(self.store, path, SourceHosts, lambda _: record, lambda: (self._in_epoch(name, epoch),))

    def _in_epoch(self, name: str, epoch: int) -> Operation:
        path = paths.application_state(name)
        state, node = standing(self.store, path, ApplicationState, f"application {name}")
        if state.epoch != epoch:
            raise _over(name, epoch)
        return Check(path, node.version)


def _over(name: str, epoch: int) -> NotOwner:
    return NotOwner(f"epoch {epoch} of application {name} is over; ask again")


def without(state: ApplicationState, levels: Collection[str]) -> ApplicationState:
    """Return it with these levels forgotten, in an epoch that has not begun."""
    return msgspec.structs.replace(
        state,
        epoch=state.epoch + 1,
        levels={name: marks for name, marks in state.levels.items() if name not in levels},
        generations={name: known for name, known in state.generations.items() if name not in levels},
        units=tuple(unit for unit in state.units if unit.level not in levels),
    )


def never_smaller(before: ApplicationState, wanted: ApplicationState) -> ApplicationState:
    levels = {
        level: LevelState(
            _larger(now.input_ms, before.levels.get(level, LevelState()).input_ms),
            _larger(now.output_ms, before.levels.get(level, LevelState()).output_ms),
        )
        for level, now in wanted.levels.items()
    }
    global_ms = _larger(wanted.global_ms, before.global_ms)
    return msgspec.structs.replace(wanted, levels=levels, global_ms=global_ms)


def _larger(one_ms: int | None, other_ms: int | None) -> int | None:
    known = [instant_ms for instant_ms in (one_ms, other_ms) if instant_ms is not None]
    return max(known, default=None)


APPROVALS_MAX = 500


def with_approval(before: Sequence[Approval], approval: Approval) -> tuple[Approval, ...]:
    """Add an approval. Repeating one changes nothing; the one that goes furthest stays: an approval is
    final."""
    if approval in before:
        return tuple(before)
    furthest = max(before, key=lambda earlier: earlier.until_ms, default=approval)
    chosen = {furthest, approval}
    room = BYTES_MAX - sum(map(_size, chosen))
    for earlier in reversed(before):
        if earlier in chosen:
            continue
        room -= _size(earlier)
        if room < 0 or len(chosen) == APPROVALS_MAX:
            break
        chosen.add(earlier)
    return (*(earlier for earlier in before if earlier in chosen), approval)


def _size(approval: Approval) -> int:
    return len(codec.encode(approval)) + 1
