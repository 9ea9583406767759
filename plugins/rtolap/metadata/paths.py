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

from rtolap.base.errors import DefinitionError

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


def publication(name: str) -> str:
    return f"{PUBLICATIONS}/{checked(name)}"


def publication_definition(name: str) -> str:
    return f"{publication(name)}/definition"


def publication_holds(name: str) -> str:
    return f"{publication(name)}/holds"


def publication_status(name: str) -> str:
    return f"{publication(name)}/status"


def publication_lead(name: str) -> str:
    return f"{publication(name)}/lead"


def request(request_id: str) -> str:
    return f"{REQUESTS}/{checked(request_id)}"


def receiver(receiver_id: str) -> str:
    return f"{RECEIVERS}/{checked(receiver_id)}"


def receiver_live(receiver_id: str) -> str:
    return f"{RECEIVERS_LIVE}/{checked(receiver_id)}"


def replica_set(name: str) -> str:
    return f"{REPLICA_SETS}/{checked(name)}"


def replica_set_election(name: str) -> str:
    return f"/replica_sets_lead/{checked(name)}"


def table(name: str) -> str:
    return f"{TABLES}/{checked(name)}"


def lookup(name: str) -> str:
    return f"{LOOKUPS}/{checked(name)}"


def cube(name: str) -> str:
    return f"{CUBES}/{checked(name)}"


def cube_definition(name: str) -> str:
    return f"{CUBES}/{checked(name)}/definition"


def cube_control(name: str) -> str:
    return f"{CUBES}/{checked(name)}/control"


def cube_changes(name: str) -> str:
    return f"{CUBES}/{checked(name)}/changes"


def cube_watermark(name: str) -> str:
    return f"{CUBES}/{checked(name)}/watermark"


def segments(cube_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/segments"


def segment(cube_name: str, segment_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/segments/{checked(segment_name)}"


def closing(cube_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/closing"


def closing_piece(cube_name: str, piece_name: str) -> str:
    return f"{closing(cube_name)}/{checked(piece_name)}"


def history(cube_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/history"


def history_page(cube_name: str, page_name: str) -> str:
    return f"{history(cube_name)}/{checked(page_name)}"


def frontier(cube_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/frontier"


def replay_from_all(cube_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/replay_from"


def replay_from(cube_name: str, replica_set_name: str) -> str:
    return f"{CUBES}/{checked(cube_name)}/replay_from/{checked(replica_set_name)}"


def application(name: str) -> str:
    return f"{APPLICATIONS}/{checked(name)}"


def application_definition(name: str) -> str:
    return f"{application(name)}/definition"


def application_state(name: str) -> str:
    return f"{application(name)}/state"


def application_approvals(name: str) -> str:
    return f"{application(name)}/approvals"


def application_hosts_all(name: str) -> str:
    return f"{application(name)}/hosts"


def application_hosts(name: str, level: str) -> str:
    return f"{application(name)}/hosts/{checked(level)}"


def fleet(cluster_id: str) -> str:
    """Return the path of a fleet. `cluster_id` is Kafka's, which may begin with a dash."""
    return f"{FLEET}/{checked(f'id-{cluster_id}')}"


def fleet_lease(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/lease"


def fleet_mover(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/mover"


def fleet_current(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/current"


def fleet_plans(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/plans"


def fleet_plan(cluster_id: str, plan_id: str) -> str:
    return f"{fleet_plans(cluster_id)}/{checked(plan_id)}"


def fleet_plan_moves(cluster_id: str, plan_id: str) -> str:
    return f"{fleet_plan(cluster_id, plan_id)}/moves"


def fleet_requests(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/requests"


def fleet_request(cluster_id: str, request_id: str) -> str:
    return f"{fleet_requests(cluster_id)}/{checked(request_id)}"


def fleet_asking(cluster_id: str, request_id: str) -> str:
    return f"{fleet(cluster_id)}/asking/{checked(request_id)}"


def fleet_brokers(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/brokers"


def fleet_broker(cluster_id: str, broker: int) -> str:
    return f"{fleet_brokers(cluster_id)}/{broker}"


def fleet_audit(cluster_id: str, broker: int) -> str:
    return f"{fleet(cluster_id)}/audit/{broker}"


def fleet_audit_entry(cluster_id: str, broker: int, number: int) -> str:
    return f"{fleet_audit(cluster_id, broker)}/{number}"


def fleet_quota_changes(cluster_id: str) -> str:
    return f"{fleet(cluster_id)}/quotas"


def fleet_quota_change(cluster_id: str, operation_id: str) -> str:
    return f"{fleet_quota_changes(cluster_id)}/{checked(operation_id)}"
