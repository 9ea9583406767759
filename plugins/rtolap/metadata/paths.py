"""Paths of every znode of rtolap, below the chroot that the settings give.

/coordinator/election/<n>         candidates (ephemeral, sequential); the lowest leads
/receivers/<id>                   persistent ReceiverRecord: address, replica set
/receivers_live/<id>              ephemeral while the receiver's session lives
/replica_sets/<rs>                ReplicaSetRecord: its receivers
/replica_sets_lead/<rs>/<n>       candidates (ephemeral, sequential); the lowest leads
/definitions/tables/<table>       Table as JSON
/definitions/lookups/<lookup>     Lookup as JSON
/cubes/<cube>/definition          Cube as JSON
/cubes/<cube>/control             CubeControl: enabled, paused, purge horizon, first offsets, assignment
/cubes/<cube>/changes             ChangeLog: which segments changed last (one watch instead of thousands)
/cubes/<cube>/segments/<segment>  SegmentRecord of a segment that is closed and not settled
/cubes/<cube>/closing/<piece>     Piece of such a record that is too large for one node (`metadata.pieces`)
/cubes/<cube>/history/<page>      SegmentPage: settled segments, by ranges of time (`metadata.pages`)
/cubes/<cube>/frontier            HistoryFrontier: how far history has come, by partition
/cubes/<cube>/replay_from/<rs>    ReplayFrom: smallest offset not yet in history, by partition
/applications/<a>/definition      Application as JSON
/applications/<a>/state           ApplicationState: what was published last, and whose word is awaited
/applications/<a>/approvals       Approvals: windows that people approved
/applications/<a>/hosts/<level>   SourceHosts: the hosts of a source that count
/publications/<name>/definition   PublicationDeclaration: what is published, and where
/publications/<name>/holds        PublicationHolds: versions that the purge leaves, since snapshots name them
/publications/<name>/status       PublicationStatus: how far the publisher is
/publications/<name>/lead/<n>     publishers (ephemeral, sequential); the lowest works
/requests/<id>                    RequestRecord: how a request to drop something was answered
/fleet/<id>/brokers/<broker>      BrokerRecord: where a broker of Kafka's cluster <id> is in its life
/fleet/<id>/audit/<broker>/<n>    AuditEntry: one change of a broker, from 1, never changed
/fleet/<id>/quotas/<operation>    QuotaChange: client quotas that were applied, by whom and why
/fleet/<id>/lease/<n>             movers (ephemeral, sequential); the lowest works
/fleet/<id>/mover                 MoverRecord: who works, and what hinders it
/fleet/<id>/current               id of the plan that is carried out
/fleet/<id>/plans/<p>             PlanRecord: how far a plan is, the throttles that it has set
/fleet/<id>/plans/<p>/moves/<n>   pieces of what it asks for, compressed
/fleet/<id>/requests/<id>         MoveRequest: what somebody asked for, signed, and how it was answered
/fleet/<id>/asking/<id>           whoever asked still waits for the answer (ephemeral)
/cluster_format                   ClusterFormat: major version of messages and records
/restoring                        id of the backup that is being restored: no service starts meanwhile
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ParamSpec

from rtolap.base.errors import DefinitionError

P = ParamSpec("P")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,199}")


def checked(name: str) -> str:
    """Return a name that may stand in a path, of a znode or in the object store. Raises DefinitionError."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            "not a usable name", expected="up to 200 letters, digits, _ . : -", found=repr(name)
        )
    return name


ELECTION = "/coordinator/election"
RECEIVERS = "/receivers"
RECEIVERS_LIVE = "/receivers_live"
REPLICA_SETS = "/replica_sets"
TABLES = "/definitions/tables"
LOOKUPS = "/definitions/lookups"
CUBES = "/cubes"
APPLICATIONS = "/applications"
PUBLICATIONS = "/publications"
REQUESTS = "/requests"
FLEET = "/fleet"
RESTORING = "/restoring"
CLUSTER_FORMAT = "/cluster_format"


def _place(parent: Callable[P, str], place: str) -> Callable[P, str]:
    """Return the function of the node `place` below the node of `parent`, which takes the same names."""

    def path(*args: P.args, **kwargs: P.kwargs) -> str:
        return f"{parent(*args, **kwargs)}/{place}"

    return path


def _named(parent: str) -> Callable[[str], str]:
    """Return the function of the nodes below `parent` by name. It raises DefinitionError for a wrong name."""

    def path(name: str) -> str:
        return f"{parent}/{checked(name)}"

    return path


def _named_of(parent: Callable[[str], str]) -> Callable[[str, str], str]:
    """Return the function of the nodes below a node of `parent`: the name of that node, then its own."""

    def path(parent_name: str, name: str) -> str:
        return f"{parent(parent_name)}/{checked(name)}"

    return path


publication = _named(PUBLICATIONS)
publication_definition = _place(publication, "definition")
publication_holds = _place(publication, "holds")
publication_status = _place(publication, "status")
publication_lead = _place(publication, "lead")
request = _named(REQUESTS)
receiver = _named(RECEIVERS)
receiver_live = _named(RECEIVERS_LIVE)
replica_set = _named(REPLICA_SETS)
replica_set_election = _named("/replica_sets_lead")
table = _named(TABLES)
lookup = _named(LOOKUPS)
cube = _named(CUBES)
cube_definition = _place(cube, "definition")
cube_control = _place(cube, "control")
cube_changes = _place(cube, "changes")
cube_watermark = _place(cube, "watermark")
segments = _place(cube, "segments")
segment = _named_of(segments)
closing = _place(cube, "closing")
closing_piece = _named_of(closing)
history = _place(cube, "history")
history_page = _named_of(history)
frontier = _place(cube, "frontier")
replay_from_all = _place(cube, "replay_from")
replay_from = _named_of(replay_from_all)
application = _named(APPLICATIONS)
application_definition = _place(application, "definition")
application_state = _place(application, "state")
application_approvals = _place(application, "approvals")
application_hosts_all = _place(application, "hosts")
application_hosts = _named_of(application_hosts_all)


def fleet(cluster_id: str) -> str:
    """Return the path of a fleet. `cluster_id` is Kafka's, which may begin with a dash."""
    return f"{FLEET}/{checked(f'id-{cluster_id}')}"


fleet_lease = _place(fleet, "lease")
fleet_mover = _place(fleet, "mover")
fleet_current = _place(fleet, "current")
fleet_plans = _place(fleet, "plans")
fleet_plan = _named_of(fleet_plans)
fleet_plan_moves = _place(fleet_plan, "moves")
fleet_requests = _place(fleet, "requests")
fleet_request = _named_of(fleet_requests)
fleet_asking = _named_of(_place(fleet, "asking"))
fleet_brokers = _place(fleet, "brokers")


def fleet_broker(cluster_id: str, broker: int) -> str:
    return f"{fleet_brokers(cluster_id)}/{broker}"


def fleet_audit(cluster_id: str, broker: int) -> str:
    return f"{fleet(cluster_id)}/audit/{broker}"


def fleet_audit_entry(cluster_id: str, broker: int, number: int) -> str:
    return f"{fleet_audit(cluster_id, broker)}/{number}"


fleet_quota_changes = _place(fleet, "quotas")
fleet_quota_change = _named_of(fleet_quota_changes)
