"""Requests of the master of transactions: report what is prepared here, make it a version, forget it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rtolap.base.errors import NotFound, NotYet, Refused, RtolapError
from rtolap.protocols.storage.messages import Abort, Prepare, Publish, TabletId, TabletsDone
from rtolap.stored.node.loads import Loads
from rtolap.stored.node.tablet_replicas import TabletReplica, TabletReplicas, for_each

log = logging.getLogger(__name__)


class TransactionParticipant:
    """Thread-safe; every call may be repeated, come late, or come twice."""

    def __init__(
        self, slots: TabletReplicas, loads: Loads, published: Callable[[TabletReplica], None]
    ) -> None:
        self._slots, self._loads, self._published = slots, loads, published

    def prepare(self, request: Prepare) -> TabletsDone:
        """Return the tablets that hold the transaction's rows durably.

        A stream that ended as announced has prepared them.
        """
        return TabletsDone(tuple(id for id in request.tablets if self._holds(id, request.txn_id)))

    def publish(self, request: Publish) -> TabletsDone:
        """Return the tablets that have the version now.

        Each is published by itself, as the disk of one may fail.
        """
        return TabletsDone(
            tuple(id for id, version in request.versions if self.advance(id, request.txn_id, version))
        )

    def advance(self, id: TabletId, txn_id: int, version: int) -> bool:
        """Make a transaction's rows a version; return True if the tablet has that version now, by this
        transaction.
        """
        slot = self._slots.find(id)
        if slot is None:
            return False
        try:
            with slot.changing:
                tablet = slot.open()
                if tablet.version >= version:
                    return self._agrees(slot, txn_id, version)
                tablet.publish(txn_id, version)
        except (NotFound, NotYet) as error:
            log.info("tablet %s is to be caught up to version %d: %s", id, version, error)
            return False
        except RtolapError as error:
            log.warning("tablet %s does not get version %d: %s", id, version, error)
            return False
        except Exception:  # of the program: it must not take the answers of other tablets with it
            log.exception("tablet %s does not get version %d", id, version)
            return False
        self._published(slot)
        return True

    def abort(self, request: Abort) -> None:
        """Abort the transaction, and refuse whatever comes for it later.

        A visible version stays, as it was not aborted.
        """
        self._loads.abort(request.txn_id, for_ever=True)
        prepared = [
            slot for slot, tablet in self._slots.open_tablets() if request.txn_id in tablet.prepared_files
        ]

        def abort(slot: TabletReplica) -> None:
            with slot.changing:
                try:
                    slot.open().abort(request.txn_id)
                except Refused as error:
                    log.error("tablet %s: %s", slot.id, error)

        for_each(prepared, abort)

    def _holds(self, id: TabletId, txn_id: int) -> bool:
        slot = self._slots.find(id)
        if slot is None or self._loads.was_aborted(txn_id):
            return False
        try:
            return slot.open().has(txn_id)
        except RtolapError as error:
            log.warning("tablet %s cannot be opened: %s", id, error)
            return False

    def _agrees(self, slot: TabletReplica, txn_id: int, version: int) -> bool:
        known = slot.open().txn_of(version)
        if known is not None and known != txn_id:
            log.error("tablet %s: version %d is of transaction %d, not %d", slot.id, version, known, txn_id)
            return False
        return True
