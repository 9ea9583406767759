"""Steps of a run: take a backup of the metadata, and lose all metadata and restore the newest backup.

Between the two, events come, segments close, are built, promoted, merged and cleaned up: what the restore
finds is what the drawn steps have left. Receivers keep their disks.
"""

from __future__ import annotations

from rtolap.backup.file_format import decode, encode
from rtolap.backup.restoring import RestorePlan, plan_restore, restore, take_backup
from rtolap.backup.versions import SegmentStep
from rtolap.base.errors import CommitConflict, CommitUnknown
from rtolap.model.segment import SegmentState

from tests.support.cubes.harness_actions import Actions
from tests.support.twins.metadata import MemoryStore

CLUSTER, TOKEN = "/rtolap", "a token that nobody guesses"
HISTORY = "history"
BROKEN_MAX = 200  # attempts of one restore: every second commit may break


class Restores:
    """The backups of a run. `restart_queries` replaces the query services, which know the old records."""

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self._cluster = actions.cluster
        self._newest: bytes | None = None
        self._history: dict[str, bytes] = {}  # its files when the backup was taken
        self.findings: set[str] = set()

    def take(self) -> None:
        cluster = self._cluster
        header, records = take_backup(
            cluster.session, cluster.clock, cluster=CLUSTER, token=TOKEN, program="1"
        )
        self._newest = encode(header, records, TOKEN)
        files = cluster.store.list(HISTORY)
        self._history = {file.path: cluster.store.read(file.path) for file in files}
        self._actions.counts["backups"] += 1

    def lose_and_restore(self) -> bool:
        """Return False where there is no backup yet."""
        if self._newest is None:
            return False
        cluster, counts = self._cluster, self._actions.counts
        cluster.coordinator.close()
        with cluster.ensemble.lock:
            root = cluster.ensemble.nodes[""]
            cluster.ensemble.nodes = {"": root}
        backup = decode(self._newest, "the newest backup", cluster=CLUSTER, token=TOKEN)
        plan = plan_restore(backup, cluster.clock, cluster.store, lambda _: cluster.admin)
        if any("and its vectors are gone" in each.message for each in plan.findings):
            self._restore_history()
            plan = plan_restore(backup, cluster.clock, cluster.store, lambda _: cluster.admin)
        for each in plan.findings:
            counts[f"restored: {each.outcome}"] += 1
            self.findings.add(f"{each.outcome} {each.message}")
        session = MemoryStore(cluster.ensemble)
        for attempt in range(BROKEN_MAX):
            try:
                restore(plan, session, cluster.clock, cluster.store, overwrite=attempt > 0, lacking=True)
                break
            except (CommitConflict, CommitUnknown):
                counts["broken restores"] += 1
        else:
            raise AssertionError("the restore never ended")
        session.close()
        self._check_adopted(plan)
        cluster.fail_over()
        restored = cluster.metadata.control(cluster.cube).restored
        for receiver in cluster.receivers:
            receiver.slots.follow_restore(restored)
            receiver.crash()
            if receiver.alive:
                cluster.metadata.announce_live(receiver.name, "restored")
        counts["restores"] += 1
        return True

    def _restore_history(self) -> None:
        """Restore files of the object store, as the plan says: from then, and none that are newer."""
        store = self._cluster.store
        for path, data in self._history.items():
            if not store.exists(path):
                store.write(path, data)
                self._actions.counts["files restored"] += 1

    def _check_adopted(self, plan: RestorePlan) -> None:
        """What the plan takes is history now, for those too who read the records anew."""
        records = self._cluster.metadata.segments(self._cluster.cube)
        for step in plan.steps:
            if isinstance(step, SegmentStep) and step.finding.outcome == "taken":
                record = records[step.window.name]
                assert record.state is SegmentState.READY, step.finding
                assert f"version {record.version} is adopted from {record.location}" in step.finding.message
