"""The active master's service: peers, tables' families and the cluster's status.

Every call finds the master again where the last one did not answer. Changes are repeated until they are
seen to be done: one whose answer got lost may have been done already.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound, Refused, Unavailable
from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.connection import Connection, error_of
from rtolap.sep.hbase.peers import Peer, TableFamilies, table_text
from rtolap.sep.hbase.znodes import HBaseZnodes

_POLL_S = 0.05
_POLL_S_MAX = 0.5
_CALL_TIMEOUT_S = 10.0
_SCOPE = b"REPLICATION_SCOPE"
M = TypeVar("M", bound=Message)


class MasterClient(Closeable):
    """Calls of the master that `znodes` names, each within `timeout_s`. Close it."""

    def __init__(self, znodes: HBaseZnodes, *, timeout_s: float = 30.0) -> None:
        self._znodes = znodes
        self._timeout_s = timeout_s
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- reading ------------------------------------------------------------------------------------------

    def peers(self) -> dict[str, Peer]:
        response = self._read(
            "ListReplicationPeers",
            Empty(),
            admin_pb2.ListReplicationPeersResponse,
        )
        return {described.id: Peer.of(described) for described in response.peer_desc}

    def cluster_status(self, *options: admin_pb2.Option) -> admin_pb2.ClusterStatus:
        """Return the status of the cluster. `options` are the parts to return; without any, all parts are
        returned."""
        response = self._read(
            "GetClusterStatus",
            admin_pb2.GetClusterStatusRequest(options=options),
            admin_pb2.GetClusterStatusResponse,
        )
        return response.cluster_status

    def replicated_families(self, namespace: str | None = None) -> dict[str, dict[str, bool]]:
        """Tell by table and family whether its edits are shipped at all, that is its REPLICATION_SCOPE is not
        0.

        `namespace`: of this one only; system tables are not among them.
        """
        response = self._read(
            "GetTableDescriptors",
            admin_pb2.GetTableDescriptorsRequest(namespace=namespace),
            admin_pb2.GetTableDescriptorsResponse,
        )
        return {
            table_text(table.table_name): {
                family.name.decode(): _scope(family) for family in table.column_families
            }
            for table in response.table_schema
        }

    # -- changes ------------------------------------------------------------------------------------------

    def add_peer(self, peer: Peer) -> None:
        """Add a peer. Raises Refused where HBase has one of that name already, or does not take it."""
        states = admin_pb2.ReplicationState
        state = states.ENABLED if peer.enabled else states.DISABLED
        request = admin_pb2.PeerRequest(
            peer_id=peer.id, peer_config=peer.to_message(), peer_state=states(state=state)
        )
        self.change("AddReplicationPeer", request, lambda: self.peers().get(peer.id) == peer)

    def update_peer(self, peer: Peer) -> None:
        """Update everything of a peer but its name, its cluster key and its state."""
        request = admin_pb2.PeerRequest(peer_id=peer.id, peer_config=peer.to_message())
        self.change("UpdateReplicationPeerConfig", request, lambda: self.peers().get(peer.id) == peer)

    def remove_peer(self, peer_id: str) -> None:
        """Remove a peer. Raises NotFound."""
        request = admin_pb2.PeerRequest(peer_id=peer_id)
        self.change("RemoveReplicationPeer", request, lambda: peer_id not in self.peers())

    def enable_peer(self, peer_id: str) -> None:
        """Enable the peer. Harmless for an enabled one. Raises NotFound."""
        self._switch("EnableReplicationPeer", peer_id, True)

    def disable_peer(self, peer_id: str) -> None:
        """Disable the peer. Harmless for a disabled one. Raises NotFound."""
        self._switch("DisableReplicationPeer", peer_id, False)

    def _switch(self, method: str, peer_id: str, enabled: bool) -> None:
        peer = self.peers().get(peer_id)
        if peer is None:
            raise NotFound(f"HBase has no peer {peer_id}")
        if peer.enabled != enabled:  # HBase refuses to enable one that is
            request = admin_pb2.PeerRequest(peer_id=peer_id)
            self.change(method, request, lambda: self._is_enabled(peer_id) is enabled)

    def _is_enabled(self, peer_id: str) -> bool | None:
        peer = self.peers().get(peer_id)
        return None if peer is None else peer.enabled

    def change(self, method: str, request: Message, is_done: Callable[[], bool]) -> None:
        """Call and wait for the procedure that the master runs for it.

        `is_done` is asked after a call whose outcome is unknown; a refusal after such a one is no refusal
        if it holds.
        """
        deadline_s = time.monotonic() + self._timeout_s
        unknown = False
        while True:
            try:
                response = self._call(method, request, admin_pb2.ProcedureResponse, deadline_s)
                self._wait_procedure(method, response.proc_id, deadline_s)
                return
            except Unavailable:
                if not _pause(deadline_s):
                    raise
                unknown = True
            except (Refused, NotFound):
                if unknown and is_done():
                    return
                raise
            if is_done():
                return

    def _wait_procedure(self, method: str, proc_id: int, deadline_s: float) -> None:
        request = admin_pb2.GetProcedureResultRequest(proc_id=proc_id)
        states = admin_pb2.GetProcedureResultResponse
        pause_s = _POLL_S
        while True:
            response = self._call("getProcedureResult", request, states, deadline_s)
            if response.HasField("exception"):
                exception = response.exception.generic_exception
                name = exception.class_name.rpartition(".")[2].rpartition("$")[2]
                raise error_of(name, exception.message or exception.class_name, method)
            if response.state != states.RUNNING:
                return  # one that is not found any more has ended a while ago
            if not _pause(deadline_s, pause_s):
                raise Unavailable(
                    f"HBase's master did not finish {method} within {self._timeout_s:g} s",
                    action="look at its procedures and its log, then repeat",
                )
            pause_s = min(2 * pause_s, _POLL_S_MAX)

    # -- calling ------------------------------------------------------------------------------------------

    def _read(self, method: str, request: Message, kind: type[M]) -> M:
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._call(method, request, kind, deadline_s)
            except Unavailable:
                if not _pause(deadline_s):
                    raise

    def _call(self, method: str, request: Message, kind: type[M], deadline_s: float) -> M:
        if self._connection is None:
            master = self._znodes.master()
            self._connection = Connection(master.host, master.port, "MasterService")
        left_s = max(_POLL_S, min(_CALL_TIMEOUT_S, deadline_s - time.monotonic()))
        try:
            return self._connection.call(method, request, kind, timeout_s=left_s)
        except Unavailable:
            self.close()
            raise


def _pause(deadline_s: float, pause_s: float = _POLL_S_MAX) -> bool:
    """Return false, at once, where the time is over."""
    if time.monotonic() + pause_s > deadline_s:
        return False
    time.sleep(pause_s)
    return True


def unreplicated(families: dict[str, dict[str, bool]], wanted: TableFamilies) -> TableFamilies:
    """Return those of the `wanted` families (none of a table: all of it) whose edits HBase does not ship."""
    missing: TableFamilies = {}
    for table, names in wanted.items():
        known = families.get(table, {})
        names = names or tuple(known)
        silent = tuple(name for name in names if name in known and not known[name])
        if silent:
            missing[table] = silent
    return missing


def scope_statement(table: str, families: tuple[str, ...]) -> str:
    """Return the statement of HBase's shell that lets the families' edits be shipped."""
    parts = ", ".join(f"{{NAME => '{family}', REPLICATION_SCOPE => 1}}" for family in families)
    return f"alter '{table}', {parts}"


def _scope(family: admin_pb2.ColumnFamilySchema) -> bool:
    text = {pair.first: pair.second for pair in family.attributes}.get(_SCOPE, b"0")
    return bool(re.fullmatch(rb"[1-9]\d*", text))
