"""Use cases of dead letters of a loader: list, replay, drop. Commands and the endpoint call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rtolap.base.clock import Clock
from rtolap.base.errors import NotFound
from rtolap.events.formats.readers import Registries, no_registries
from rtolap.events.rejects import BATCH_LABEL
from rtolap.kafka.dead_letters import KeptLetter
from rtolap.model.loader import Loader
from rtolap.protocols.loader.letters import (
    NEWEST_MAX,
    DropOutcome,
    DropRequest,
    LetterList,
    ReplayOutcome,
    ReplayRequest,
)
from rtolap.stored.loader.job import read_config
from rtolap.stored.loader.letters.listing import listed, shortened
from rtolap.stored.loader.letters.reading import Chosen
from rtolap.stored.loader.letters.replay import Replayer
from rtolap.stored.loader.sink import Sink
from rtolap.stored.metastore.dead_letter_sets import LetterState
from rtolap.stored.metastore.dead_letters import DeadLetters
from rtolap.stored.metastore.load_jobs import LoadJobs


class LetterPlace(NamedTuple):
    """The place of a loader's letters: a topic, or a file of this host.

    Attributes:
        read: reads them in their order: the last so many, of a topic those of each partition; None for all.
    """

    read: Callable[[int | None], Iterable[KeptLetter]]
    topic: str = ""
    file: Path | None = None


class LetterAccess:
    """The dead letters of one loader. `pending` returns the labels of its batches that are not loaded;
    `place` says where the letters of a definition are; `sink` is called for a replay."""

    def __init__(
        self,
        job_id: str,
        jobs: LoadJobs,
        letters: DeadLetters,
        pending: Callable[[], Collection[str]],
        place: Callable[[Loader], LetterPlace],
        sink: Callable[[Loader], Sink],
        clock: Clock,
        registries: Registries = no_registries,
    ) -> None:
        self._job_id = job_id
        self._jobs = jobs
        self._letters = letters
        self._pending = pending
        self._place = place
        self._sink = sink
        self._clock = clock
        self._registries = registries

    def list(self, newest: int, *, reason: str = "", state: str = "") -> LetterList:
        """Return the newest letters; of a reason or in a state, those among the `NEWEST_MAX` newest."""
        loader = self._loader()
        place = self._place(loader)
        shown = max(1, min(newest, NEWEST_MAX))
        wanted = NEWEST_MAX if reason or state else shown
        pending = (
            self._pending()
        )  # before the states: a batch that is loaded in between has left it out or not
        letters = [shortened(letter) for letter in self._read(loader, wanted + 1)]
        labels = {letter.text(BATCH_LABEL) for letter in letters}
        sets = self._letters.sets(self._job_id, labels=labels)
        ids = {each.action_id for each in sets if each.action_id is not None}
        found = listed(letters[-wanted:], sets, self._letters.actions(self._job_id, ids), pending)
        fitting = [
            letter for letter in found if reason in ("", letter.reason) and state in ("", letter.state)
        ]
        return LetterList(
            job=self._job_id,
            topic=place.topic,
            file="" if place.file is None else str(place.file),
            letters=tuple(fitting[:shown]),
            counts=self._letters.counts(self._job_id),
            reasons=dict(Counter(letter.reason for letter in found)),
            cut=len(letters) > wanted or len(fitting) > shown,
        )

    def replay(self, request: ReplayRequest) -> ReplayOutcome:
        """Load the chosen open letters, each once: see `Replayer.replay`."""
        loader = self._loader()
        replayer = Replayer(
            loader,
            self._letters,
            self._sink(loader),
            lambda: self._read(loader),
            self._clock,
            self._registries,
        )
        return replayer.replay(request.selection, request.who, out_of_order=request.out_of_order)

    def drop(self, request: DropRequest) -> DropOutcome:
        """Give the chosen letters up. They stay where they are kept, and are never replayed."""
        loader = self._loader()
        sets = self._letters.sets(self._job_id, LetterState.OPEN, LetterState.UNCERTAIN)
        chosen = Chosen(request.selection).of_sets(sets, self._read(loader))
        action = self._letters.drop(self._job_id, chosen, request.who, request.why)
        return DropOutcome(dropped=0 if action is None else action.records)

    def _loader(self) -> Loader:
        return read_config(self._jobs.get(self._job_id)).loader

    def _read(self, loader: Loader, newest: int | None = None) -> Iterator[KeptLetter]:
        try:
            yield from self._place(loader).read(newest)
        except NotFound:  # a topic is made for the first letter
            return
