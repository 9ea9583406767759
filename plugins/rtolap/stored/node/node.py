"""A storage node whole, as `protocols.storage.client.StorageNode` has it: its Flight endpoint calls this, and
so can other code in the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import copied
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import BatchStream, StorageNode
from rtolap.stored.engine.disk import Disk
from rtolap.stored.node.catching_up import CatchingUp
from rtolap.stored.node.compactor import Compactor
from rtolap.stored.node.folder import DataFolder
from rtolap.stored.node.loads import Load, Loads
from rtolap.stored.node.pins import Pins
from rtolap.stored.node.scans import ScanStream
from rtolap.stored.node.scrubber import Scrubber
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.node.tablet_replicas import TabletReplicas, for_each
from rtolap.stored.node.transaction_participant import TransactionParticipant

_COPY = pa.schema([pa.field(wire.COPY_NAME, pa.string()), pa.field(wire.COPY_DATA, pa.binary())])


class LocalNode(Closeable):
    """A `StorageNode` in this process. It is thread-safe. `node_at` finds other nodes by their addresses, to
    copy from."""

    def __init__(
        self,
        name: str,
        data: Path,
        node_at: Callable[[str], StorageNode],
        settings: StorageSettings | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Open all tablets as a crash left them. Raises Refused while another process serves the folder."""
        self.name, self.settings = name, settings or StorageSettings()
        self.folder = DataFolder(data)
        try:
            self._slots = TabletReplicas(self.folder, self.settings.tablet, disk)
        except BaseException:
            self.folder.release()
            raise
        self._loads = Loads(self._slots, self.settings, self.folder.free_bytes)
        self.pins = Pins(lambda tablet: self._slots.get(tablet).open())
        self.compactor = Compactor(
            self._slots, self._loads, self.settings.compact_every_s, looking=self.pins.expire
        )
        self.scrubber = Scrubber(self._slots, self.settings.verify_every_s, self.settings.verify_bytes_per_s)
        self._voting = TransactionParticipant(self._slots, self._loads, self.compactor.notice)
        self._catching_up = CatchingUp(self._slots, self._loads, self._voting, node_at, self.compactor.notice)

    def close(self) -> None:
        """Give up running loads. Prepared transactions stay."""
        self.scrubber.stop()
        self.compactor.stop()
        self._catching_up.close()
        self._loads.close()
        self.pins.close()
        self._slots.close()
        self.folder.release()

    @property
    def loaded_rows(self) -> int:
        """Since the node was started, prepared or not."""
        return self._loads.rows

    def begin(self, head: wire.PutHead) -> Load:
        return self._loads.begin(head)

    def put(self, head: wire.PutHead, columns: pa.Schema) -> _Put:
        return _Put(self.begin(head))

    def scan(self, request: wire.ScanRequest) -> BatchStream:
        if request.pin:
            return ScanStream(self.pins.snapshot(request.pin, request.tablet), request)
        return ScanStream(self._slots.get(request.tablet).open().pin(request.version), request)

    def pin(self, request: wire.Pin) -> wire.TabletsDone:
        return self.pins.pin(request)

    def unpin(self, request: wire.Unpin) -> None:
        self.pins.unpin(request)

    def copy(self, request: wire.CopyRequest) -> BatchStream:
        tablet = self._slots.get(request.tablet).open()

        def batches() -> Iterator[pa.RecordBatch]:
            with tablet.export(request.after) as export:
                for chunk in export.chunks():
                    yield pa.record_batch([[chunk.name], [chunk.data]], schema=_COPY)

        return _Batches(_COPY, batches())

    def create(self, request: wire.CreateTablets) -> None:
        for_each(request.tablets, lambda tablet: self._slots.create(tablet, request.schema))

    def drop(self, request: wire.DropTablets) -> None:
        for_each(request.tablets, self._slots.drop)

    def change_schema(self, request: wire.ChangeSchema) -> None:
        self._slots.change_schema(request.table_id, request.db, request.table, request.schema)

    def prepare(self, request: wire.Prepare) -> wire.TabletsDone:
        return self._voting.prepare(request)

    def publish(self, request: wire.Publish) -> wire.TabletsDone:
        return self._voting.publish(request)

    def catch_up(self, request: wire.CatchUp) -> wire.Reached:
        return self._catching_up.catch_up(request)

    def abort(self, request: wire.Abort) -> None:
        self._voting.abort(request)

    def status(self) -> wire.NodeStatus:
        reports = []
        for slot, tablet in self._slots.open_tablets():
            tablet_status = tablet.status()
            reports.append(
                copied(
                    wire.TabletReport,
                    tablet_status,
                    tablet=slot.id,
                    pending_files=tablet.pending_files(),
                    compacting_since_ms=slot.compaction.running_since_ms,
                    compacted_ms=slot.compaction.ended_ms,
                    compaction_problem=slot.compaction.problem,
                )
            )
        return wire.NodeStatus(
            name=self.name,
            node_id=self.folder.node_id,
            free_bytes=self.folder.free_bytes(),
            load_memory_bytes=self._loads.memory.used_bytes,
            loading=self._loads.running(),
            tablets=tuple(reports),
            broken=dict(self._slots.broken),
        )

    def ping(self, within_s: float) -> None:
        """Answer, to show that the node is here."""


class _Put:
    """A `RowStream` into this process."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def write(self, tablet: wire.TabletId, batch: pa.RecordBatch) -> None:
        try:
            self._load.add_rows(tablet, batch)
        except BaseException:
            self.cancel()
            raise

    def finish(self, end: wire.PutEnd) -> wire.PutAnswer:
        try:
            return self._load.finish(end)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        self._load.abort("its stream was given up")


class _Batches:
    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema, self._batches = schema, batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def cancel(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
