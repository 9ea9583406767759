"""The one error tree. Two classes exist only where a caller acts differently.

RtolapError
├── DefinitionError        a table, cube or setting is wrong: mend the file
├── NotFound               a named thing does not exist
│   └── PartitionNotFound  nor does a partition of a table that does
├── Refused                a legal request that the present state forbids (HTTP 409)
│   ├── IllegalTransition  a lifecycle has no such step
│   ├── NotYet             it will be allowed later: wait and retry
│   ├── AlreadyExists      another thing has the name
│   │   └── PartitionExists
│   ├── LabelUsed          a load with this label is there: `existing_job_status` says how far it is
│   ├── SchemaTooNew       a database, file or cluster of a newer program: start that one
│   ├── IncompleteSnapshot a fleet's snapshot lacks what the decision needs: take another
│   ├── ImpossiblePlan     what is asked of a fleet cannot be done without breaking a rule: ask for less
│   ├── PlanRefused        a fleet plan may not be carried out
│   │   ├── PlanChanged    it is not what its planner wrote: plan again
│   │   ├── OtherCluster   it was made for another cluster: submit it there
│   │   └── PlanOutdated   the fleet is no longer what it was made of: plan again
│   ├── RowsRefused        rows that a table does not take: mend them
│   ├── NotInLog           edits that the logs of their source cannot hold: look at who sends them
│   ├── TooLarge           more bytes than are taken: send less
│   ├── OverBudget         more memory than the connection or the user may have: give some back, or send less
│   └── TooSlow            bytes that did not come in time: send them faster
├── Unauthorized           missing or wrong credentials
│   ├── SessionOffered     the first half of a mutual proof: it is not an error of the caller
│   ├── SessionUnknown     the server has forgotten the session: open another, nothing was done
│   └── Impostor           who answers does not know the cluster's secret: its answer does not count
├── Forbidden              right credentials, but not for this
├── CommitConflict         somebody else changed the record first: re-read and retry
├── CommitUnknown          the connection broke during a commit: read back before acting
├── SessionLost            the ZooKeeper session is gone: leadership and ephemerals with it
├── Unavailable            a peer did not answer in time: try another, or later
│   ├── NotLeader          send the request to `leader_url`
│   │   └── NotOwner       another coordinator runs the application: send the request to `leader_url`
│   ├── NotReached         events that were answered before are not read yet: wait, or see the cube's problem
│   ├── Unanswered         nobody serves what was asked for, and it is withdrawn: ask again when somebody does
│   ├── TooLittleDisk      the disk has to have more free than this would leave: ask for less, or later
│   └── TooManyAtOnce      others are at work, as many as the service or the user may: retry later
├── StaleSnapshot          the receiver no longer holds what the snapshot asks for: take a new one
├── Corrupted              bytes fail their checksum or structure
│   └── Forged             a record without the cluster's signature, or changed since: whoever wrote it
├── QueryError             SQL that is wrong, or that a cube cannot answer
│   ├── SqlSyntaxError     no statement at all, or one with wrong arguments
│   ├── UnsupportedSql     a statement, or part of one, that others may know
│   ├── UnknownTable
│   ├── UnknownColumn
│   ├── UnknownDatabase
│   ├── QueryInterrupted   ended by a user, or with its client
│   ├── QueryTimeout
│   ├── OutOfRange         a computed value that its type cannot hold
│   ├── UnreadableValue    a value that does not read as the type that it is used as
│   └── UnknownFunction
└── ProcessFailed          a child process ended when it should not have
"""

from __future__ import annotations

from typing import Any


class RtolapError(Exception):
    """Base of all errors raised on purpose.

    The message says what was attempted, on what, what was expected, what was found and what to do.
    """

    code = "error"
    http_status = 500

    def __init__(
        self,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        action: str | None = None,
    ) -> None:
        self.message = message
        self.expected = expected
        self.found = found
        self.action = action
        text = message
        if expected is not None:
            text += f"; expected {expected}"
        if found is not None:
            text += f"; found {found}"
        if action:
            text += f"; {action}"
        super().__init__(text)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as it travels over REST and Flight: in characters, whatever it repeats of a
        request.
        """
        return {"code": self.code, "message": str(self).encode(errors="replace").decode()}


class DefinitionError(RtolapError):
    code = "definition"
    http_status = 422


class ColumnExists(DefinitionError):
    code = "column_exists"


class NotFound(RtolapError):
    code = "not_found"
    http_status = 404


class PartitionNotFound(NotFound):
    code = "partition_not_found"


class ColumnNotFound(NotFound):
    code = "column_not_found"


class Refused(RtolapError):
    code = "refused"
    http_status = 409


class IllegalTransition(Refused):
    code = "illegal_transition"


class NotYet(Refused):
    code = "not_yet"


class AlreadyExists(Refused):
    code = "already_exists"


class PartitionExists(AlreadyExists):
    code = "partition_exists"


class LabelUsed(Refused):
    code = "label_used"
    txn_id: int = -1
    existing_job_status: str = ""

    def __init__(self, message: str, *, txn_id: int = -1, existing_job_status: str = "") -> None:
        super().__init__(message)
        self.txn_id = txn_id
        self.existing_job_status = existing_job_status


class SchemaTooNew(Refused):
    code = "schema_too_new"


class IncompleteSnapshot(Refused):
    code = "incomplete_snapshot"


class ImpossiblePlan(Refused):
    code = "impossible_plan"


class PlanRefused(Refused):
    code = "plan_refused"


class PlanChanged(PlanRefused):
    code = "plan_changed"


class OtherCluster(PlanRefused):
    code = "other_cluster"


class PlanOutdated(PlanRefused):
    code = "plan_outdated"


class RowsRefused(Refused):
    code = "rows_refused"


class NotInLog(Refused):
    code = "not_in_log"


class OverBudget(Refused):
    code = "over_budget"
    http_status = 413


class TooLarge(Refused):
    code = "too_large"
    http_status = 413


class TooSlow(Refused):
    code = "too_slow"
    http_status = 408


class Unauthorized(RtolapError):
    code = "unauthorized"
    http_status = 401


class SessionOffered(Unauthorized):
    code = "session_offered"


class SessionUnknown(Unauthorized):
    code = "session_unknown"


class Impostor(Unauthorized):
    code = "impostor"


class Forbidden(RtolapError):
    code = "forbidden"
    http_status = 403


class CommitConflict(RtolapError):
    code = "commit_conflict"
    http_status = 409


class CommitUnknown(RtolapError):
    code = "commit_unknown"
    http_status = 503


class SessionLost(RtolapError):
    code = "session_lost"
    http_status = 503


class Unavailable(RtolapError):
    code = "unavailable"
    http_status = 503


class Unanswered(Unavailable):
    code = "unanswered"


class NotLeader(Unavailable):
    code = "not_leader"
    leader_url: str | None = None

    def __init__(self, message: str, *, leader_url: str | None = None) -> None:
        super().__init__(message)
        self.leader_url = leader_url


class NotOwner(NotLeader):
    code = "not_owner"


class NotReached(Unavailable):
    code = "not_reached"


class TooManyAtOnce(Unavailable):
    code = "too_many_at_once"


class TooLittleDisk(Unavailable):
    code = "too_little_disk"


class StaleSnapshot(RtolapError):
    code = "stale_snapshot"
    http_status = 409


class PinExpired(StaleSnapshot):
    """A version was pinned for a statement, and the time for which it was is over."""

    code = "pin_expired"


class Corrupted(RtolapError):
    code = "corrupted"


class Forged(Corrupted):
    """A record that the cluster's token has not signed.

    Attributes:
        version: of the node that holds the record, for the process that writes it anew.
    """

    code = "forged"
    version: int = -1

    def __init__(
        self,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        action: str | None = None,
        version: int = -1,
    ) -> None:
        super().__init__(message, expected=expected, found=found, action=action)
        self.version = version


class QueryError(RtolapError):
    code = "query"
    http_status = 400


class SqlSyntaxError(QueryError):
    code = "sql_syntax"


class UnsupportedSql(QueryError):
    code = "unsupported_sql"


class UnknownTable(QueryError):
    code = "unknown_table"


class UnknownColumn(QueryError):
    code = "unknown_column"


class UnknownDatabase(QueryError):
    code = "unknown_database"


class UnknownConnection(QueryError):
    code = "unknown_connection"


class UnknownVariable(QueryError):
    code = "unknown_variable"


class UnknownZone(QueryError):
    code = "unknown_zone"


class UnknownPrepared(QueryError):
    """A session prepared no statement of that name."""

    code = "unknown_prepared"


class QueryInterrupted(QueryError):
    code = "query_interrupted"


class QueryTimeout(QueryError):
    code = "query_timeout"
    http_status = 504


class OutOfRange(QueryError):
    code = "out_of_range"


class UnreadableValue(QueryError):
    code = "unreadable_value"


class UnknownFunction(QueryError):
    code = "unknown_function"


class ProcessFailed(RtolapError):
    code = "process_failed"


def _tree(root: type[RtolapError]) -> dict[str, type[RtolapError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_tree(child))
    return found


def from_dict(payload: dict[str, Any]) -> RtolapError:
    """Rebuild an error that crossed a wire; unknown codes become a plain RtolapError."""
    kind = _tree(RtolapError).get(str(payload.get("code")), RtolapError)
    error = kind.__new__(kind)  # an error that takes more than a message is built from its message alone
    RtolapError.__init__(error, str(payload.get("message", "no message")))
    return error
