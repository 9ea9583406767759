"""The check that a topic is still the one that stored offsets count in.

A consumer does not notice that its topic was deleted and recreated once the new log is longer than its
position: it reads on, and what lies below is never read. The topic's id tells: Kafka gives a new one with
each creation, and never the old one again. So what was read before an id was confirmed belongs to that id,
and offsets are stored only when the id was confirmed after what they count was read.

    id          is                                                   then
    confirmed   the known one, or none was known: it is adopted      offsets may be stored
    missing     there is no such topic                               TopicMissing: wait, store nothing
    another     TopicRecreated, for good                             stop: a person says what counts now
    none        the broker gives no ids (Kafka before 2.8)           as confirmed: nothing can be compared

The same topic may have lost records that were read, and have others at their offsets: `truncation`. That is
compared with each confirmation too, and stands for as long as nothing is done about it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from rtolap.base.errors import NotFound
from rtolap.kafka.interfaces import LogTruncated, TopicMissing, TopicRecreated

# A cube's history counts by the offsets of the topic that is gone.
CUBE_ACTION = (
    "the new topic needs another cube: `rtolap drop --disable` this one and create it again, or create one "
    "of another name beside it and keep this one for its history"
)


class TopicIdentity:
    """The identity of a topic. It is thread-safe. `ask` is `StreamConsumer.topic_id`; `action` says what a
    person can do about another topic; `check_log` compares the read offsets with the log, and raises
    LogTruncated."""

    def __init__(
        self,
        topic: str,
        ask: Callable[[float], str],
        *,
        action: str,
        known: str | None = None,
        check_log: Callable[[float], None] = lambda timeout_s: None,
    ) -> None:
        self._topic = topic
        self._ask = ask
        self._action = action
        self._known = known or None
        self._check_log = check_log
        self._recreated: TopicRecreated | None = None
        self._truncated: LogTruncated | None = None
        self._reads = 0
        self._reads_confirmed = -1
        self._confirmations = 0
        self._lock = Lock()

    @property
    def known(self) -> str | None:
        """Return None before it is adopted, and where the broker gives no ids."""
        return self._known

    @property
    def confirmations(self) -> int:
        """Return how often the identity was confirmed: grows with each."""
        return self._confirmations

    @property
    def recreated(self) -> TopicRecreated | None:
        """Return the recreation that was found before, on whichever thread."""
        return self._recreated

    def note_read(self) -> None:
        """Note, in the one thread that reads, that something has come which no confirmation so far is good
        for."""
        self._reads += 1

    def expect(self, topic_id: str | None) -> None:
        """Expect a topic id, under which offsets are stored elsewhere. Raises TopicRecreated if it is not the
        known one."""
        if topic_id:
            self._compare(topic_id)

    def raise_if_changed(self) -> None:
        """Answer without a call: by what was found before. Raises TopicRecreated, LogTruncated."""
        if self._recreated is not None:
            raise self._recreated
        if self._truncated is not None:
            raise self._truncated

    def truncation_settled(self) -> None:
        """Note that what was read of lost records is counted no more. The log is compared again."""
        self._truncated = None

    def confirm(self, timeout_s: float = 5.0) -> str | None:
        """Return the topic's id, asked now and the known one.

        Raises TopicRecreated, LogTruncated, TopicMissing, Unavailable.
        """
        self.raise_if_changed()
        reads = self._reads
        try:
            topic_id = self._ask(timeout_s)
        except NotFound as error:
            raise TopicMissing(self._topic) from error
        if topic_id:
            self._compare(topic_id)
        try:
            self._check_log(timeout_s)
        except LogTruncated as error:
            self._truncated = error
            raise
        with self._lock:
            self._reads_confirmed = max(self._reads_confirmed, reads)
            self._confirmations += 1
        return self._known

    def confirm_reads(self, timeout_s: float = 5.0) -> str | None:
        """Do as `confirm`; a call is made only if something was read since the last one."""
        self.raise_if_changed()
        return self._known if self._reads_confirmed >= self._reads else self.confirm(timeout_s)

    def _compare(self, topic_id: str) -> None:
        with self._lock:
            if self._known is None:
                self._known = topic_id
            if topic_id != self._known and self._recreated is None:
                self._recreated = TopicRecreated(
                    self._topic, known=self._known, found=topic_id, action=self._action
                )
        if self._recreated is not None:
            raise self._recreated
