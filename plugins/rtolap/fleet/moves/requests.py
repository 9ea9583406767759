"""Requests of people to the mover: signed with the cluster's token, stored with the answer.

Requests stand in ZooKeeper, where more people may write than may move data. The mover accepts a request only
if it carries the signature of somebody who has the token. The last five hundred requests stay as lines of the
audit.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum

import msgspec

from rtolap.base.errors import Forbidden, Refused
from rtolap.fleet.moves.records import Hours

AGE_MS_MAX = 3_600_000
_AHEAD_MS_MAX = 300_000


class RequestKind(StrEnum):
    SUBMIT = "submit"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    THROTTLE = "throttle"


class MoverAnswer(msgspec.Struct, frozen=True):
    """The mover's answer.

    Attributes:
        code: Code of the error with which the request was refused. Empty where it was accepted.
    """

    at_ms: int
    code: str = ""
    message: str = ""


class MoveRequest(msgspec.Struct, frozen=True):
    """A signed request.

    Attributes:
        plan_id: The plan. Empty for the current one.
        partitions: Partitions that a CANCEL names. Empty for all.
        moves_digest: Digest of the stored moves of a SUBMIT.
        plan_digest: Digest of the plan file that was approved.
        rate_bytes_per_s: Throttle of a SUBMIT or THROTTLE. None: no throttle.
    """

    request_id: str
    kind: RequestKind
    cluster_id: str
    at_ms: int
    by: str
    reason: str = ""
    plan_id: str = ""
    partitions: tuple[tuple[str, int], ...] = ()
    moves_digest: str = ""
    plan_digest: str = ""
    rate_bytes_per_s: int | None = None
    hours: Hours | None = None
    signature: str = ""
    answer: MoverAnswer | None = None


def signed(request: MoveRequest, token: str) -> MoveRequest:
    return msgspec.structs.replace(request, signature=_signature(request, token))


def check_request(request: MoveRequest, token: str, cluster_id: str, now_ms: int) -> None:
    """Raise Forbidden for a wrong signature, and Refused for another cluster or a time outside this hour."""
    if not hmac.compare_digest(request.signature.encode(), _signature(request, token).encode()):
        raise Forbidden(
            f"request {request.request_id} is not signed with the cluster's token",
            action="send it with the token that the mover has",
        )
    if request.cluster_id != cluster_id:
        raise Refused(
            "the request is for another Kafka cluster", expected=cluster_id, found=request.cluster_id
        )
    if not now_ms - AGE_MS_MAX <= request.at_ms <= now_ms + _AHEAD_MS_MAX:
        raise Refused(
            f"request {request.request_id} is not of this hour", action="check the clocks, and send it again"
        )


def _signature(request: MoveRequest, token: str) -> str:
    bare = msgspec.structs.replace(request, signature="", answer=None)
    return hmac.new(token.encode(), msgspec.json.encode(bare), hashlib.sha256).hexdigest()
