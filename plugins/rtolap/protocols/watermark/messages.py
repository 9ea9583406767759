"""Watermarks of applications over REST, below `/api/v1/applications`: the messages.

Reports are msgpack (`application/x-msgpack`) or JSON, everything else is JSON. Instants are ms since the
epoch, None is unknown. In columns every entry stands for one host: `index` int32, `latest_ms` and `events`
int64, all little-endian (base64 in JSON).

A **session** is what one client has reported to one leader: it begins with `begins`, which a client sets in
its first batch and after an answer with `resend`, and in which it reports everything it knows. `sequence`
grows with every batch of a client, over sessions too; a batch is repeated unchanged until it is answered. A
process that keeps the `client_id` of a former one goes on behind that one's `sequence`, else its batches
count as repeated and are not taken: begin at the wall clock in ms, as the client here does, or take another
id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from rtolap.base.errors import DefinitionError
from rtolap.model.application import LevelRole
from rtolap.protocols.rest.messages import Definition, Message

MSGPACK = "application/x-msgpack"
REPORT_BYTES_MAX = 32 * 1024 * 1024
HOST_NAME_MAX = 255
HOSTS_MAX = 200_000  # of a source, and named in a session
REASON_MAX, BY_MAX = 2_000, 200  # characters of an approval
NAMELESS = "*"  # stands for all hosts of a source without a host list


def check_host_names(names: Sequence[str], what: str) -> None:
    """Raise DefinitionError for a wrong host name, without repeating it."""
    for position, name in enumerate(names):
        if not name or len(name) > HOST_NAME_MAX or not name.isprintable() or " " in name:
            raise DefinitionError(
                f"{what}: entry {position + 1} is not the name of a host",
                expected=f"1 to {HOST_NAME_MAX} printable characters without spaces",
                found=f"{len(name)} characters",
            )


class SourceReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Report of what the consumer of one partition has read, by host.

    `hosts` are names that are new in this session and level; they get the indices from `hosts_from` on.
    `events`, if given, counts what was read since the batch before.

    Attributes:
        partitions: how many the source has, where its consumer knows; all of them are then awaited.
        progress: host → latest_ms, in place of the columns. A source with the rule `partitions` needs no
            names: its largest instant counts.
    """

    level: str
    partition: int
    generation: int
    hosts: tuple[str, ...] = ()
    hosts_from: int = 0
    index: bytes = b""
    latest_ms: bytes = b""
    partitions: int = 0
    events: bytes = b""
    progress: dict[str, int] = {}


class UnitReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The oldest work of a unit. A refusal names a unit by `unit_path`.

    Attributes:
        oldest_work_ms: of what this unit has taken in and not finished; None if there is none.
        left: the unit ends.
        generation: of its owner; a report of an older one has no effect.
    """

    level: str
    processor: str
    key_group: int = 0
    oldest_work_ms: int | None = None
    left: bool = False
    generation: int = 0


def unit_path(level: str, processor: str, key_group: int) -> str:
    return f"{level}/{processor}/{key_group}"


class ReportBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A client's reports, sent at once.

    Attributes:
        client_epoch: the server's, as the last answer said it; 0 at first.
    """

    client_id: str
    sequence: int
    client_epoch: int = 0
    begins: bool = False
    sources: tuple[SourceReport, ...] = ()
    units: tuple[UnitReport, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Part of a batch that had no effect."""

    what: str
    why: str


class ReportAnswer(msgspec.Struct, frozen=True):
    """The answer to a batch of reports.

    Attributes:
        resend: nothing was taken, begin a session with `epoch`.
        watermarks: level → output.
    """

    epoch: int
    resend: bool = False
    watermarks: dict[str, int | None] = {}
    inputs: dict[str, int | None] = {}
    global_ms: int | None = None
    approved_until_ms: int | None = None
    refused: tuple[Refusal, ...] = ()


class LevelWatermark(Message):
    input_ms: int | None = None
    output_ms: int | None = None
    published_at_ms: int


class ApplicationWatermarks(Message):
    application: str
    epoch: int
    now_ms: int
    levels: dict[str, LevelWatermark] = Field(default_factory=dict)
    global_ms: int | None = None
    approved_until_ms: int | None = None


class HostBehind(Message):
    """A host that is behind.

    Attributes:
        share_ppm: of a window's events, how many it may still owe.
        hint: what may be wrong with it.
    """

    host: str
    latest_ms: int | None = None
    behind_ms: int | None = None
    share_ppm: int
    holds: bool = False
    hint: str = ""


class HostsInfo(Message):
    """Hosts of a source.

    Attributes:
        holding: how many are not beyond its watermark.
        unseen: not read at all.
    """

    application: str
    level: str
    watermark_ms: int | None = None
    list_epoch: int
    counting: int
    unseen: int
    holding: int
    behind: tuple[HostBehind, ...] = ()
    awaited_partitions: tuple[int, ...] = ()
    list_problem: str | None = None


class Explanation(Message):
    """May the window that ends at `window_end_ms` close, and if not, what it waits for.

    Attributes:
        breached_ppm: by source, how much of the window was missing when it closed, where that was more than
            declared; empty while nothing shows it.
    """

    application: str
    window_end_ms: int
    may_close: bool
    approved: bool = False
    global_ms: int | None = None
    reasons: tuple[str, ...] = ()
    hosts: dict[str, HostsInfo] = Field(default_factory=dict)
    expected_missing_ppm: dict[str, int] = Field(default_factory=dict)
    bound_ppm: dict[str, int] = Field(default_factory=dict)
    breached_ppm: dict[str, int] = Field(default_factory=dict)


class HostsChange(Message):
    """`register` and `renew` give a lease; a host that is drained leaves once it has been read to its
    `end_ms`, one that is removed leaves at once."""

    level: str
    action: Literal["register", "renew", "drain", "remove"]
    hosts: tuple[str, ...]
    end_ms: int | None = None


class HostsChanged(Message):
    level: str
    list_epoch: int
    counting: int
    lease_ms: int | None = None


class ApprovalRequest(Message):
    until_ms: int
    by: Annotated[str, Field(max_length=BY_MAX)]
    reason: Annotated[str, Field(max_length=REASON_MAX)]


class ApprovalInfo(Message):
    until_ms: int
    by: str
    reason: str
    at_ms: int


class ApplicationOwner(Message):
    """`owner`: address of the coordinator that runs the application; None while it moves."""

    application: str
    owner: str | None = None


class ApplicationInfo(Message):
    """An application, its definition and where it stands.

    Attributes:
        owner: address of the coordinator that runs it.
        counters: what was refused or had no effect since this owner began.
        problems: what needs a human.
    """

    name: str
    definition: Definition
    epoch: int
    owner: str | None = None
    clients: int
    units: int
    hosts: dict[str, int] = Field(default_factory=dict)
    counters: dict[str, int] = Field(default_factory=dict)
    problems: tuple[str, ...] = ()
    approvals: tuple[ApprovalInfo, ...] = ()


class UnitInfo(Message):
    """A unit of a level: a processor with a key group.

    Attributes:
        oldest_work_ms: the oldest work that it has taken in and not finished; None if there is none.
        awaited: True if it is known from a former leader and has not yet reported to this one. The output
            then waits for it where it stands.
        holds: True if the level's output cannot go beyond this unit.
    """

    level: str
    processor: str
    key_group: int
    oldest_work_ms: int | None = None
    behind_ms: int | None = None
    lease_left_ms: int
    awaited: bool = False
    holds: bool = False


class UnitsInfo(Message):
    """The units of an application with their work.

    Attributes:
        counts: how many units each level has, of which `units` lists those with the oldest work.
    """

    application: str
    now_ms: int
    counts: dict[str, int]
    units: tuple[UnitInfo, ...] = ()


class HostTrace(Message):
    """A host in the samples in which it was among those that hold its source most: that owe the most events,
    where the rule is `deficit`, else the furthest behind.

    Attributes:
        at: positions in `at_ms` of the history.
        latest_ms: what it had been read up to in each, None if it was never seen.
    """

    host: str
    at: tuple[int, ...]
    latest_ms: tuple[int | None, ...]


class UnitTrace(Message):
    """A unit in the samples in which its work was among the oldest of its level; see HostTrace."""

    processor: str
    key_group: int
    at: tuple[int, ...]
    oldest_work_ms: tuple[int, ...]


class LevelHistory(Message):
    """`input_ms`, `output_ms` and `holding` (hosts not beyond the input watermark) have an entry per
    sample. Of a source that knows no hosts, `hosts` are its partitions; of every source those that have not
    spoken to this owner yet, which then hold it and no host does."""

    role: LevelRole
    input_ms: tuple[int | None, ...]
    output_ms: tuple[int | None, ...]
    holding: tuple[int, ...]
    hosts: tuple[HostTrace, ...] = ()
    units: tuple[UnitTrace, ...] = ()


class ApplicationHistory(Message):
    """Watermarks against the clock, a sample at each of `at_ms`, levels after their upstreams.

    The owner remembers it, from `since_ms` on (None: nothing yet), and it ends with that owner.
    """

    application: str
    epoch: int
    now_ms: int
    since_ms: int | None = None
    at_ms: tuple[int, ...] = ()
    global_ms: tuple[int | None, ...] = ()
    levels: dict[str, LevelHistory] = Field(default_factory=dict)
    approvals: tuple[ApprovalInfo, ...] = ()
