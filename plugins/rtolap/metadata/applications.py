"""Applications as they are kept: definition, published state, approvals, and the hosts that count."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

import msgspec

from rtolap.base.errors import NotFound, NotLeader, Refused
from rtolap.metadata import codec, paths
from rtolap.metadata.records import ApplicationState, Approval, Approvals, LevelState, SourceHosts
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation
from rtolap.metadata.updates import read, retrying, update
from rtolap.model.application import Application

APPROVALS_KEPT = 500
HOSTS_RECORD_BYTES_MAX = 700_000  # a node holds 1 MB, and base64 adds a third


class ApplicationRecords:
    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def names(self) -> tuple[str, ...]:
        found = self.store.children(paths.APPLICATIONS)
        return tuple(name for name in found if self.store.get(paths.application_definition(name)) is not None)

    def definition(self, name: str) -> Application:
        found = read(self.store, paths.application_definition(name), Application)
        if found is None:
            raise NotFound(f"application {name} does not exist")
        return found

    def create(self, application: Application) -> None:
        """Repeating it with an equal definition changes nothing; Refused if there is another one."""
        path = paths.application_definition(application.name)

        def attempt() -> None:
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
                    action="drop it first, or choose another name",
                )

        retrying(attempt)

    def drop(self, name: str) -> None:
        """In one commit, so that nothing of it is met by an application of the same name."""
        self.definition(name)

        def attempt() -> None:
            hosts = paths.application_hosts_all(name)
            below = [f"{hosts}/{level}" for level in self.store.children(hosts)]
            all_paths = [
                *below,
                hosts,
                paths.application_approvals(name),
                paths.application_state(name),
                paths.application_definition(name),
                paths.application(name),
            ]
            present = [path for path in all_paths if self.store.get(path) is not None]
            if present:
                self.store.commit([Delete(path) for path in present])

        retrying(attempt)

    # -- what was published -----------------------------------------------------------------------------

    def begin(self, name: str, now_ms: int) -> ApplicationState:
        """A new leader's epoch, written before anything is answered in it."""
        epochs: list[int] = []

        def begun(state: ApplicationState | None) -> ApplicationState:
            if state is None:
                raise NotFound(f"application {name} does not exist")
            if state.epoch in epochs:
                return state  # the answer to our own commit was lost
            epochs.append(max(state.epoch + 1, now_ms))
            return msgspec.structs.replace(state, epoch=epochs[-1])

        after = update(self.store, paths.application_state(name), ApplicationState, begun)
        assert after is not None, "`begun` never removes the record"
        return after

    def state(self, name: str) -> ApplicationState | None:
        return read(self.store, paths.application_state(name), ApplicationState)

    def publish(self, name: str, wanted: ApplicationState) -> ApplicationState:
        """Persist; no watermark becomes smaller. NotLeader if a later epoch has begun. Returns what
        stands."""

        def advanced(state: ApplicationState | None) -> ApplicationState:
            if state is None:
                raise NotFound(f"application {name} does not exist")
            if state.epoch != wanted.epoch:
                raise NotLeader(f"epoch {wanted.epoch} of application {name} is over; ask the leader")
            return never_smaller(state, wanted)

        after = update(self.store, paths.application_state(name), ApplicationState, advanced)
        assert after is not None, "`advanced` never removes the record"
        return after

    # -- approvals --------------------------------------------------------------------------------------

    def approvals(self, name: str) -> tuple[Approval, ...]:
        found = read(self.store, paths.application_approvals(name), Approvals)
        return () if found is None else found.approvals

    def approve(self, name: str, approval: Approval) -> tuple[Approval, ...]:
        def approved(record: Approvals | None) -> Approvals:
            before = () if record is None else record.approvals
            if approval in before:
                return Approvals(before)
            kept = before[-(APPROVALS_KEPT - 1) :]
            furthest = max(before, key=lambda one: one.until_ms, default=None)
            if furthest is not None and furthest not in kept:
                kept = (furthest, *kept[1:])  # what is let go stays so
            return Approvals((*kept, approval))

        path = paths.application_approvals(name)
        after = update(self.store, path, Approvals, approved, self._exists(name))
        assert after is not None, "`approved` never removes the record"
        return after.approvals

    # -- hosts ------------------------------------------------------------------------------------------

    def hosts(self, name: str, level: str) -> tuple[int, tuple[str, ...]]:
        """(epoch of the list, names); epoch 0 while none was kept."""
        found = read(self.store, paths.application_hosts(name, level), SourceHosts)
        if found is None:
            return 0, ()
        text = zlib.decompress(found.names).decode()
        return found.epoch, tuple(text.split("\n")) if text else ()

    def keep_hosts(self, name: str, level: str, epoch: int, names: Iterable[str]) -> None:
        """Refused if they are too many for one node; what was kept before then stands."""
        packed = zlib.compress("\n".join(names).encode(), 6)
        if len(packed) > HOSTS_RECORD_BYTES_MAX:
            raise Refused(
                f"the host list of {name}/{level} is too large",
                expected=f"at most {HOSTS_RECORD_BYTES_MAX} bytes compressed",
                found=len(packed),
            )
        record = SourceHosts(epoch, packed)
        path = paths.application_hosts(name, level)
        update(self.store, path, SourceHosts, lambda _: record, self._exists(name))

    def _exists(self, name: str) -> Callable[[], tuple[Operation, ...]]:
        """The requirement that the application is still there, lest a late writer leave half of one
        behind."""

        def requirement() -> tuple[Operation, ...]:
            self.definition(name)
            return (Check(paths.application_definition(name), -1),)

        return requirement


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
