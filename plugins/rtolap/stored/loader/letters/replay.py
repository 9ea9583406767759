"""Replay of dead letters: loads of open letters, each under a label of its own.

One load after the other, of at most as many records and bytes as a batch of the loader:

    1. decode          what is refused again stays open, with the reason
    2. begin           the others are taken, under a label
    3. note, send      the answer, or the closed label, says what came of it
    4. finish, reopen  the ledger has it

Whoever is killed in between has left a replay without an outcome. The next replay ends it first: it closes
the label, so that its rows are in the table or never will be.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, Refused, RtolapError, Unavailable
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.events.formats.sources import Beside
from rtolap.events.rejects import BATCH_LABEL, BATCH_SHA256
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.model.load_headers import declared_headers
from rtolap.model.loader import Loader
from rtolap.protocols.loader.letters import LetterSelection, ReplayOutcome
from rtolap.protocols.stream_load.messages import LoadState, SendOptions
from rtolap.stored.loader.commit import CLOCKS_APART_MS_MAX
from rtolap.stored.loader.letters.reading import Chosen, batch_of, incomplete, open_letters, places_of
from rtolap.stored.loader.preparing import decoder_of
from rtolap.stored.loader.records.decode import Decoded, RecordDecoder
from rtolap.stored.loader.records.encode import encode, format_headers
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.states import Stopped, Verdict, verdict
from rtolap.stored.loader.target import SinkColumns
from rtolap.stored.metastore.dead_letter_sets import LetterState
from rtolap.stored.metastore.dead_letters import DeadLetters, LetterAction, ReplayState
from rtolap.stored.metastore.leases import Lease

log = logging.getLogger(__name__)

LETTERS_MAX = 200_000  # of one replay: the sets of places that are looked up are in memory
_PROBLEMS_MAX = 20
_DETAIL_CHARS_MAX = 500
_LOADED = (LoadState.COMMITTED, LoadState.VISIBLE)

ReadLetters = Callable[[], Iterable[KeptLetter]]


@dataclass
class _Tally:
    loaded: int = 0
    refused: int = 0
    seen: int = 0
    labels: list[str] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    stopped: bool = False

    def ended(self, action: LetterAction) -> None:
        self.labels.append(action.label)
        if action.state is ReplayState.LOADED:
            self.loaded += action.records
        else:
            self.problems[action.detail] += action.records

    def outcome(self, *, missing: int, more: bool) -> ReplayOutcome:
        return ReplayOutcome(
            loaded=self.loaded,
            refused=self.refused,
            missing=missing,
            labels=tuple(self.labels),
            problems=tuple(problem for problem, _ in self.problems.most_common(_PROBLEMS_MAX)),
            more=more,
        )


class Replayer:
    """Replays letters of one loader. `read` reads its topic of dead letters from the beginning."""

    def __init__(
        self,
        loader: Loader,
        letters: DeadLetters,
        sink: Sink,
        read: ReadLetters,
        clock: Clock,
        registries: Registries = no_registries,
    ) -> None:
        self._loader = loader
        self._letters = letters
        self._sink = sink
        self._read = read
        self._clock = clock
        self._registries = registries
        self._sources = tuple(loader.text_sources)

    def replay(self, selection: LetterSelection, who: str, *, out_of_order: bool = False) -> ReplayOutcome:
        """Load the chosen open letters. Raises NotYet while somebody else replays letters of the loader;
        Refused where the order of rows counts, unless it may be another; the errors of sink and ledger, after
        which a further replay goes on."""
        chosen = Chosen(selection)
        self._check_sink()
        lease = self._letters.own(self._loader.name, f"replay/{uuid4().hex}")
        try:
            return self._replay(lease, chosen, who, out_of_order=out_of_order)
        finally:
            with suppress(RtolapError):  # it runs out then
                self._letters.release(lease)

    def _check_sink(self) -> None:
        if not self._sink.keeps_labels():
            raise Refused(
                f"dead letters of loader {self._loader.name} cannot be replayed",
                expected="a server that keeps labels until they are given back: of this product",
                found=f"target {self._loader.sink.target}",
                action="produce the mended records to the topic again, and drop the letters",
            )

    def _replay(self, lease: Lease, chosen: Chosen, who: str, *, out_of_order: bool) -> ReplayOutcome:
        job_id, tally = self._loader.name, _Tally()
        self._give_back(lease)
        for action in self._letters.unfinished(job_id):
            tally.ended(self._closed(lease, action, "it was not known whether it came"))
        sets = self._letters.sets(job_id, LetterState.OPEN)
        if not sets:
            return tally.outcome(missing=0, more=False)
        decoder = self._decoder(out_of_order=out_of_order)
        for chunk in self._chunks(open_letters(sets, self._read()), chosen, tally):
            lease = self._letters.renew(lease)
            self._load(lease, decoder, chunk, who, tally)
            if tally.stopped:
                break
        more = tally.stopped or tally.seen > LETTERS_MAX
        still_open = sum(len(kept.places) for kept in sets)
        missing = still_open - tally.seen if chosen.is_all and not more else 0
        self._give_back(lease)
        return tally.outcome(missing=missing, more=more)

    def _decoder(self, *, out_of_order: bool) -> RecordDecoder:
        columns = SinkColumns(self._sink, self._loader)
        try:
            columns.refresh()
            decoder = decoder_of(self._loader, columns.target, self._registries)
        except Stopped as error:
            raise DefinitionError(str(error)) from error
        if columns.target.ordered and not out_of_order:
            raise Refused(
                f"the rows of {self._loader.database}.{self._loader.table} have an order",
                expected="a table where an older row takes the place of none, such as with a sequence column",
                found="a table in which the row that comes last wins",
                action="replay them out of order, if no newer row has their keys",
            )
        return decoder

    def _chunks(
        self, letters: Iterable[KeptLetter], chosen: Chosen, tally: _Tally
    ) -> Iterator[list[KeptLetter]]:
        chunk: list[KeptLetter] = []
        size = 0
        for letter in letters:
            if letter not in chosen:
                continue
            tally.seen += 1
            if tally.seen > LETTERS_MAX:
                break
            chunk.append(letter)
            size += len(letter.value or b"")
            if len(chunk) >= self._loader.batch.rows or size >= self._loader.batch.bytes:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    def _load(
        self, lease: Lease, decoder: RecordDecoder, letters: list[KeptLetter], who: str, tally: _Tally
    ) -> None:
        """Load letters that are open, as far as they are not refused again."""
        accepted = self._accepted(lease, decoder, letters, tally)
        if not accepted:
            return
        action = self._letters.begin(lease, self._loader.name, places_of(accepted), who)
        if action is None:
            return
        taken = {
            (kept.label, kept.batch_sha256, place)
            for kept in self._letters.sets(self._loader.name, LetterState.REPLAYING)
            if kept.action_id == action.action_id
            for place in kept.places
        }
        own = [each for each in accepted if _identity(each) in taken]  # without what was dropped meanwhile
        tally.ended(self._send(lease, action, self._decoded(decoder, own), tally))

    def _accepted(
        self, lease: Lease, decoder: RecordDecoder, letters: list[KeptLetter], tally: _Tally
    ) -> list[KeptLetter]:
        """Return the letters that are not refused again, and note why the others are."""
        reasons: dict[int, str] = {}
        whole = []
        for number, letter in enumerate(letters):
            if why := incomplete(letter, self._sources):
                reasons[number] = why
            else:
                whole.append(number)
        if whole:
            rejects = self._decoded(decoder, [letters[number] for number in whole]).rejects
            for place, reason, detail in zip(
                rejects.index.tolist(), rejects.reason, rejects.detail, strict=True
            ):
                reasons[whole[place]] = f"{reason}: {detail}"[:_DETAIL_CHARS_MAX]
        refused: dict[str, list[KeptLetter]] = {}
        for number, why in reasons.items():
            # One row of the ledger for each reason, with the first detail: details may all differ.
            refused.setdefault(why.partition(":")[0], []).append(letters[number])
            tally.problems[why] += 1
        details = {why.partition(":")[0]: why for why in reversed(reasons.values())}
        for reason, again in refused.items():
            detail = f"refused again: {details[reason]}"
            self._letters.refused_again(lease, self._loader.name, places_of(again), detail)
            tally.refused += len(again)
        return [letter for number, letter in enumerate(letters) if number not in reasons]

    def _decoded(self, decoder: RecordDecoder, letters: list[KeptLetter]) -> Decoded:
        batch = batch_of(letters, self._sources)
        return decoder.decode(batch.values, None, Beside.of(batch))

    def _send(self, lease: Lease, action: LetterAction, decoded: Decoded, tally: _Tally) -> LetterAction:
        loader, rows = self._loader, decoded.rows
        if len(decoded.rejects) or not rows.num_rows:  # a registry, say, has changed in between
            return self._letters.reopen(lease, action, "they were decoded twice, and not alike")
        not_after_ms = self._clock.now_ms() + loader.sink.timeout_ms
        options = SendOptions(
            format=loader.sink.format,
            columns=tuple(rows.schema.names),
            timeout_s=loader.sink.timeout_ms // 1000,
            max_filter_ratio=0.0,
            keep_label=True,
            not_after_ms=not_after_ms,
            rows=rows.num_rows,
            headers=format_headers(loader.sink.target, loader.sink.format)
            | declared_headers(loader.delivery),
        )
        body = encode(rows, loader.sink.format)
        action = self._letters.note_sent(lease, action, not_after_ms)
        try:
            answer = self._sink.load(loader.database, loader.table, action.label, body, options)
        except Unavailable as error:
            return self._closed(lease, action, str(error))
        if verdict(answer, two_phase=False) is Verdict.LOADED:
            return self._letters.finish(lease, action)
        url = answer.error_url if isinstance(answer.error_url, str) else ""
        tally.stopped = True
        return self._closed(
            lease, action, f"{answer.message}; rejected rows: {url}" if url else answer.message
        )

    def _closed(self, lease: Lease, action: LetterAction, why: str) -> LetterAction:
        """End a replay whose outcome is not known: after this it is in the table, or never will be."""
        if not action.sent_until_ms:
            return self._letters.reopen(lease, action, "it was not sent")
        state = self._sink.close_label(self._loader.database, action.label)
        if state in _LOADED:
            return self._letters.finish(lease, action)
        return self._letters.reopen(lease, action, why[:_DETAIL_CHARS_MAX])

    def _give_back(self, lease: Lease) -> None:
        """Give the labels of ended replays back, once no request under them is taken any more."""
        for action in self._letters.unacknowledged(self._loader.name):
            if self._clock.now_ms() <= action.sent_until_ms + CLOCKS_APART_MS_MAX:
                continue
            try:
                self._sink.acknowledge(self._loader.database, [action.label])
            except Refused as error:  # committed and not visible yet: the next replay gives it back
                log.info("label %s cannot be given back yet: %s", action.label, error)
                continue
            self._letters.acknowledged(lease, action)


def _identity(letter: KeptLetter) -> tuple[str, str, tuple[int, int]]:
    return letter.text(BATCH_LABEL), letter.text(BATCH_SHA256), (letter.partition, letter.offset)
