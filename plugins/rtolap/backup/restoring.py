"""A restore, numbered by what a crash after each step leaves behind.

1. compare the backup with Kafka and the object store   nothing: a plan, which is shown
2. refuse sessions, and records that are not to go      nothing
3. write /restoring                                     services do not start; repeat with `overwrite`
4. delete what stands there                             the same
5. write the records                                    the same
6. adopt versions, lose parts and bases, join sets      the same
7. delete /restoring                                    the cluster is as it will be: start the services
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rtolap.backup.carried import Carried, carry
from rtolap.backup.cluster_copy import all_paths, copy_cluster, live_sessions
from rtolap.backup.copy_store import CopyStore
from rtolap.backup.file_format import Backup, Header, cluster_key
from rtolap.backup.findings import Finding
from rtolap.backup.positions import LogsOf, compare_positions
from rtolap.backup.versions import SegmentChange, SegmentStep, SetStep, compare_versions
from rtolap.base.clock import Clock
from rtolap.base.errors import CommitConflict, CommitUnknown, Refused
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import check_format
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.merging.commit import commit_set
from rtolap.metadata.records import SegmentRecord
from rtolap.metadata.store import COMMIT_BYTES_MAX, SIGNATURE_BYTES, Create, Delete, MetadataStore, Operation
from rtolap.metadata.updates import retried
from rtolap.object_store.store import ObjectStore

_OPERATIONS_MAX = 200  # of one commit
_BYTES_MAX = COMMIT_BYTES_MAX // 2
_SHOWN_MAX = 5


class RestorePlan(NamedTuple):
    """The steps of a restore, before it begins.

    Attributes:
        restore_id: new for each plan; it stands in the control record of each cube afterwards.
        steps: changes of segments and sets, after the records are written.
    """

    restore_id: str
    header: Header
    carried: Carried
    steps: tuple[SegmentStep | SetStep, ...]
    findings: tuple[Finding, ...]

    @property
    def lacking(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings if each.outcome == "lacking")


def take_backup(
    store: MetadataStore, clock: Clock, *, cluster: str, token: str, program: str
) -> tuple[Header, dict[str, bytes]]:
    """Return the header, without its checksum, and the records. Raises as `copy_cluster`."""
    copied = copy_cluster(store)
    header = Header(
        backup_id=uuid.uuid4().hex,
        cluster=cluster,
        cluster_key=cluster_key(token),
        made_ms=clock.now_ms(),
        program=program,
        passes=copied.passes,
        records=len(copied.records),
    )
    return header, copied.records


def plan_restore(backup: Backup, clock: Clock, store: ObjectStore, logs_of: LogsOf) -> RestorePlan:
    """Compare the backup with what stands. Nothing is written. Raises Corrupted, Unavailable,
    DefinitionError, SchemaTooNew."""
    restore_id = uuid.uuid4().hex
    carried = carry(backup.records, restore_id)
    copy_store = CopyStore(backup.records)
    check_format(copy_store)
    copied = ClusterMetadata(copy_store, clock, store)
    steps: list[SegmentStep | SetStep] = []
    findings = list(carried.findings)
    for each in compare_versions(copied, store):
        if isinstance(each, Finding):
            findings.append(each)
            continue
        steps.append(each)
        if isinstance(each, SegmentStep):
            findings.append(each.finding)
    findings += compare_positions(copied, logs_of)
    return RestorePlan(restore_id, backup.header, carried, tuple(steps), tuple(findings))


def restore(
    plan: RestorePlan,
    store: MetadataStore,
    clock: Clock,
    files: ObjectStore,
    *,
    overwrite: bool = False,
    lacking: bool = False,
) -> None:
    """Carry out the plan on a cluster whose services are stopped.

    `overwrite`: delete what stands there. `lacking`: go on although something is lacking. Raises Refused
    before anything is written.
    """
    _check(plan, store, overwrite=overwrite, lacking=lacking)
    if store.get(paths.RESTORING) is None:
        _commit(store, [Create(paths.RESTORING, plan.restore_id.encode())])
    _delete(store, [path for path in all_paths(store) if path != paths.RESTORING])
    for operations in _batches(plan.carried.records):
        _commit(store, operations)
    _take_steps(plan.steps, ClusterMetadata(store, clock, files))
    _delete(store, [paths.RESTORING])


def _check(plan: RestorePlan, store: MetadataStore, *, overwrite: bool, lacking: bool) -> None:
    sessions = live_sessions(store)
    if sessions:
        raise Refused(
            "services of this cluster run",
            expected="none: a restore changes what they hold in memory",
            found=_shown(sessions),
            action="stop all of them, wait until their sessions are over, and repeat it",
        )
    standing = sorted(copy_cluster(store).records)
    if standing and not overwrite:
        raise Refused(
            "the cluster is not empty",
            expected=f"no records below {plan.header.cluster}",
            found=_shown(standing),
            action=f"`--overwrite {plan.header.cluster}` deletes them and restores the backup in their place",
        )
    if plan.lacking and not lacking:
        raise Refused(
            f"{len(plan.lacking)} things that the backup refers to are gone",
            found=_shown([f"{each.subject}: {each.message}" for each in plan.lacking]),
            action="mend them, or restore it with --despite-losses: they are refused by name until then",
        )


def _batches(records: dict[str, bytes]) -> Iterator[list[Create]]:
    """Yield commits that create all records, parents first."""
    batch: list[Create] = []
    size = 0
    for path, data in sorted(records.items()):
        bytes_ = len(path.encode()) + len(data) + SIGNATURE_BYTES
        if batch and (size + bytes_ > _BYTES_MAX or len(batch) >= _OPERATIONS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(Create(path, data))
        size += bytes_
    if batch:
        yield batch


@retried
def _commit(store: MetadataStore, operations: list[Create]) -> None:
    """Commit. Nobody else writes: what was created meanwhile was so by an attempt whose answer was lost."""
    missing: list[Operation] = []
    for each in operations:
        node = store.get(each.path)
        if node is None:
            missing.append(each)
        elif node.data != each.data:
            raise Refused(f"{each.path} was written by somebody else", action="stop all services")
    if missing:
        store.commit(missing)


def _delete(store: MetadataStore, doomed: Iterable[str]) -> None:
    """Delete nodes, children before their parents."""
    for path in doomed:
        try:
            store.commit([Delete(path)])
        except (CommitConflict, CommitUnknown):
            if store.get(path) is not None:
                store.commit([Delete(path)])


def _take_steps(steps: Iterable[SegmentStep | SetStep], metadata: ClusterMetadata) -> None:
    sets: list[SetStep] = []
    for step in steps:
        if isinstance(step, SetStep):
            sets.append(step)
            continue
        change = _at(step.change, metadata.clock.now_ms())
        metadata.update_segment(step.cube, step.window, change, with_vectors=step.with_vectors)
    for each in sets:  # behind the versions of their members
        try:
            commit_set(metadata, each.cube, each.members, each.merged)
        except Refused:
            continue  # a member is of another version: the set has no use any more


def _at(change: SegmentChange, now_ms: int) -> Callable[[SegmentRecord], SegmentRecord]:
    return lambda record: change(record, now_ms)


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return ", ".join(names[:_SHOWN_MAX]) + more
