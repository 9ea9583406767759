"""The request of a load, from its path and headers. Options of the body: `rtolap.stored.bodies.options`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Literal

import msgspec

from rtolap.base.errors import DefinitionError
from rtolap.protocols.stream_load import messages as wire
from rtolap.stored.bodies.options import LoadOptions, bad_header, boolean, load_options, one_of
from rtolap.stored.stream_load.labels import checked_label

GroupCommitMode = Literal["off_mode", "sync_mode", "async_mode"]

TIMEOUT_S_DEFAULT = 600
TIMEOUT_S_MAX = 259_200
_MODES: tuple[GroupCommitMode, ...] = ("off_mode", "sync_mode", "async_mode")


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to load.

    Attributes:
        label: the given label, or a generated one; a load that joins a group has the group's.
        keep_label: True if the label is retained until its loader acknowledges it.
        not_after_ms: the load is not begun later than this time (since 1970); None for no limit.
        user_name: the name of the sender; None where it is not known.
    """

    db: str
    table: str
    label: str
    timeout_ms: int = TIMEOUT_S_DEFAULT * 1000
    two_phase: bool = False
    comment: str = ""
    keep_label: bool = False
    not_after_ms: int | None = None
    user_name: str | None = None
    group_commit: GroupCommitMode = "off_mode"
    options: LoadOptions = LoadOptions()


def load_request(
    db: str, table: str, headers: Mapping[str, str], user_name: str | None = None
) -> LoadRequest:
    """Return the request of these headers, by lower-case name. Raises DefinitionError naming the header."""
    mode = one_of(headers, "group_commit", _MODES, "off_mode")
    options = load_options(headers)
    two_phase = boolean(headers, "two_phase_commit")
    label, keep_label = headers.get("label", "").strip(), _keep_label(headers)
    if mode != "off_mode":
        if label:
            raise DefinitionError("label and group_commit can't be set at the same time")
        if keep_label:
            raise DefinitionError("keep_label and group_commit can't be set at the same time")
        if two_phase:
            raise DefinitionError("group commit does not support two-phase commit")
        if options.partial_columns:
            raise DefinitionError("group commit does not support partial column updates")
    label = checked_label(label or uuid.uuid4().hex)
    return LoadRequest(
        db=db,
        table=table,
        label=label,
        timeout_ms=_timeout_s(headers) * 1000,
        two_phase=two_phase,
        comment=headers.get("comment", "").strip(),
        keep_label=keep_label,
        not_after_ms=_not_after_ms(headers),
        user_name=user_name,
        group_commit=mode,
        options=options,
    )


def check_framing(headers: Mapping[str, str]) -> None:
    """Raise DefinitionError unless a body either has its length announced or comes in chunks, and not
    both."""
    length, chunked = headers.get("content-length"), headers.get("transfer-encoding", "").lower()
    if (length is None) == (chunked != "chunked"):
        raise DefinitionError(
            "the length of the body is not clear",
            expected="either a Content-Length or Transfer-Encoding: chunked",
            found="both" if chunked else "neither",
        )


def _keep_label(headers: Mapping[str, str]) -> bool:
    written = headers.get(wire.KEEP_LABEL_HEADER, "").strip()
    if written not in ("", wire.KEEP_LABEL_VALUE):
        raise bad_header(wire.KEEP_LABEL_HEADER, wire.KEEP_LABEL_VALUE, written)
    return bool(written)


def _not_after_ms(headers: Mapping[str, str]) -> int | None:
    written = headers.get(wire.NOT_AFTER_HEADER, "").strip()
    if not re.fullmatch(r"\d{0,15}", written):
        raise bad_header(wire.NOT_AFTER_HEADER, "milliseconds since the epoch", written)
    return int(written) if written else None


def _timeout_s(headers: Mapping[str, str]) -> int:
    written = headers.get("timeout", "").strip() or str(TIMEOUT_S_DEFAULT)
    if not re.fullmatch(r"\d{1,9}", written) or not 1 <= int(written) <= TIMEOUT_S_MAX:
        raise bad_header("timeout", f"seconds from 1 to {TIMEOUT_S_MAX}", written)
    return int(written)
