"""Next actions for a batch, and the causes for which a loader stops: pure tables.

A recorded batch is looked up by its label:

    label is        never sent     sent            sent, and the label may be forgotten by now
    UNKNOWN         SEND           SEND            STOP label_forgotten
    PREPARE         STOP foreign   WAIT            WAIT
    PRECOMMITTED    STOP foreign   COMMIT          COMMIT
    COMMITTED       STOP foreign   LOADED          LOADED
    VISIBLE         STOP foreign   LOADED          LOADED
    ABORTED         STOP foreign   SEND            SEND

"Never sent" is certain: each request is noted durably before it goes out. Somebody else then uses our labels.
So a label is looked up before its first request too: once that is noted, a load of somebody else under it
would pass for ours. ROLL_BACK takes the place of COMMIT in a sink whose requests may join, where this process
has not counted the rows of the transaction. SEND is always under the same label, after the range has been
read again where it is not at hand. `label_retention` decides whether a label may be forgotten.
"""

from __future__ import annotations

from enum import StrEnum

from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.kafka.interfaces import LogTruncated, TopicRecreated
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState

TOPIC_MISSING_S = 5.0
TOPIC_MISSING_ANSWERS = 3


class Sent(StrEnum):
    """The state of a record's requests, as far as it is known."""

    NEVER = "NEVER"
    LATELY = "LATELY"  # the sink surely remembers its label
    LONG_AGO = "LONG_AGO"


class Action(StrEnum):
    SEND = "SEND"
    WAIT = "WAIT"
    COMMIT = "COMMIT"
    ROLL_BACK = "ROLL_BACK"
    LOADED = "LOADED"
    STOP_FOREIGN = "STOP_FOREIGN"
    STOP_FORGOTTEN = "STOP_FORGOTTEN"


_S, _A = LoadState, Action

ACTIONS: dict[tuple[Sent, LoadState], Action] = {
    (Sent.NEVER, _S.UNKNOWN): _A.SEND,
    **{(Sent.NEVER, state): _A.STOP_FOREIGN for state in LoadState if state is not _S.UNKNOWN},
    **{
        (sent, state): action
        for sent in (Sent.LATELY, Sent.LONG_AGO)
        for state, action in {
            _S.UNKNOWN: _A.SEND if sent is Sent.LATELY else _A.STOP_FORGOTTEN,
            _S.PREPARE: _A.WAIT,
            _S.PRECOMMITTED: _A.COMMIT,
            _S.COMMITTED: _A.LOADED,
            _S.VISIBLE: _A.LOADED,
            _S.ABORTED: _A.SEND,
        }.items()
    },
}


def action_for(sent: Sent, state: LoadState, *, counted: bool) -> Action:
    """`counted`: False if the transaction may hold rows of other requests too."""
    action = ACTIONS[sent, state]
    return Action.ROLL_BACK if action is Action.COMMIT and not counted else action


class Verdict(StrEnum):
    """The meaning of a load's response. ASK: nothing is certain before the label's state is requested."""

    LOADED = "LOADED"
    COMMIT = "COMMIT"
    ASK = "ASK"


def verdict(answer: LoadAnswer, *, two_phase: bool) -> Verdict:
    """Judge an answer. A failure is not definite: the commit may have succeeded behind it. Nor is RUNNING a
    success."""
    if answer.is_durable:
        return Verdict.COMMIT if two_phase else Verdict.LOADED
    if answer.status == "Label Already Exists" and answer.existing_job_status == "FINISHED":
        return Verdict.LOADED
    return Verdict.ASK


class StopCause(StrEnum):
    """The cause of a FAILED job. Each needs a person: going on by itself would lose rows, double them or
    never end.

    offsets_gone        the position is below what the topic still holds: retention was faster
    offsets_beyond      the position is beyond the topic's end: it was deleted and recreated
    log_truncated       the topic's log has lost records that were read, and may have others at their offsets
    topic_recreated     the topic's id is another one than the offsets that are recorded count in
    range_gone          the same, of a range that is recorded and not loaded yet
    range_changed       a recorded range reads otherwise than when it was sent: compaction, or another topic
    kafka_refuses       the brokers do not let it read the topic or keep refused records, or do not let it in
    topic_gone          there is no such topic, or it has fewer partitions than before
    label_foreign       somebody else uses this job's labels
    label_forgotten     the sink does not know whether it has taken a batch
    too_many_rejects    more refused records in a batch than are tolerated
    too_many_filtered   the sink has refused too many rows of a batch
    sink_refuses        the sink fails the same batch again and again, or answers nothing at the start
    sink_unavailable    the sink has not answered for too long
    table_unusable      the table is not there, or its columns cannot be filled from the topic
    rejects_not_kept    refused records cannot be written where they are kept
    stuck               a request is still under way in the sink long after its time-out
    broken              an error that has no name: see the log
    """

    OFFSETS_GONE = "offsets_gone"
    OFFSETS_BEYOND = "offsets_beyond"
    LOG_TRUNCATED = "log_truncated"
    TOPIC_RECREATED = "topic_recreated"
    RANGE_GONE = "range_gone"
    RANGE_CHANGED = "range_changed"
    KAFKA_REFUSES = "kafka_refuses"
    TOPIC_GONE = "topic_gone"
    LABEL_FOREIGN = "label_foreign"
    LABEL_FORGOTTEN = "label_forgotten"
    TOO_MANY_REJECTS = "too_many_rejects"
    TOO_MANY_FILTERED = "too_many_filtered"
    SINK_REFUSES = "sink_refuses"
    SINK_UNAVAILABLE = "sink_unavailable"
    TABLE_UNUSABLE = "table_unusable"
    REJECTS_NOT_KEPT = "rejects_not_kept"
    STUCK = "stuck"
    BROKEN = "broken"


RECREATED_ACTION = (
    "`rtolap loader reset` loads all of the new topic, with `--at` from offsets of your choice; then start it"
)

TRUNCATED_ACTION = (
    "look what of it is in the table, then `rtolap loader reset --at` the offsets where the logs diverge; a "
    "loader declared with `truncation: drop` reads on by itself where nothing of it was sent"
)


class Stopped(RtolapError):
    """The job cannot go on. Not of the common tree: it never leaves the loader."""

    code = "loader_stopped"

    def __init__(
        self,
        cause: StopCause,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        action: str | None = None,
    ) -> None:
        self.cause = cause
        super().__init__(f"{cause}: {message}", expected=expected, found=found, action=action)


def recreated(error: TopicRecreated) -> Stopped:
    """Return the stop of a job whose topic was recreated: its recorded offsets count in a topic that is
    gone.
    """
    return Stopped(
        StopCause.TOPIC_RECREATED,
        f"topic {error.topic} was deleted and recreated",
        expected=error.expected,
        found=error.found,
        action=error.action,
    )


def truncated(error: LogTruncated, sent: str | None = None) -> Stopped:
    """Return the stop of a job that has read records that the log has lost. `sent` are those past recall."""
    return Stopped(
        StopCause.LOG_TRUNCATED,
        f"the log of topic {error.topic} was cut below what was read of it",
        expected=error.expected,
        found=error.found if sent is None else f"{error.found}; {sent}",
        action=error.action,
    )


class MissingTopic:
    """The meaning of "there is no such topic" for a loader; of one thread.

    A broker that has just started may not know all topics yet. A topic is gone when it was asked for often
    enough and for long enough, and no answer between knew it: a process that was stopped for a while has seen
    two answers, and nothing in between.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._answers = 0

    def meaning(self, error: NotFound, now_s: float) -> Stopped | Unavailable:
        """Return Unavailable: ask again; or Stopped: the topic is gone. `now_s`: by a monotonic clock."""
        self._since_s = now_s if self._since_s is None else self._since_s
        self._answers += 1
        if self._answers >= TOPIC_MISSING_ANSWERS and now_s - self._since_s >= TOPIC_MISSING_S:
            return Stopped(StopCause.TOPIC_GONE, str(error))
        return Unavailable("a topic is missing: waiting for it", found=str(error))

    def found(self) -> None:
        """Note an answer that knew the topic."""
        self._since_s, self._answers = None, 0
