"""Loader protocol: messages about dead letters.

    GET  /api/v1/loader/dead-letters?newest=N[&reason=R][&state=S]      → LetterList
    POST /api/v1/loader/dead-letters/replay          ReplayRequest → ReplayOutcome
    POST /api/v1/loader/dead-letters/drop            DropRequest → DropOutcome

A request may be sent again: what was replayed or dropped before is neither again. 409 `not_yet` while another
replay of the loader is under way.
"""

from __future__ import annotations

import msgspec

from rtolap.protocols.loader.messages import API

LETTERS_API = f"{API}/dead-letters"
NEWEST_DEFAULT, NEWEST_MAX = 1_000, 10_000
REPLAY_TIMEOUT_S = 900.0  # of a client: a load may take its ten minutes


class LetterSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The letters that a request concerns: those that fit all that is given; without anything, all.

    Attributes:
        reason: why they were refused; "" for any reason.
        places: their places in the loader's topic, as PARTITION/OFFSET; () for any place.
    """

    reason: str = ""
    places: tuple[str, ...] = ()


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A wish to load letters.

    Attributes:
        who: the person, for the record.
        out_of_order: load them also where an older row takes the place of a newer one.
    """

    who: str
    selection: LetterSelection = LetterSelection()
    out_of_order: bool = False


class DropRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A wish to give letters up. `who` is the person, `why` the reason; both are kept."""

    who: str
    why: str = ""
    selection: LetterSelection = LetterSelection()


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a replay, in numbers of letters.

    Attributes:
        loaded: those that are in the table now by this replay, or by one before that it has ended.
        refused: those that were refused again: they stay open.
        missing: open ones whose letters were not found: the topic of dead letters has them no more, or the
            file of another host.
        labels: of the loads.
        problems: why letters stay open, each reason once.
        more: there are further open ones: replay again.
    """

    loaded: int = 0
    refused: int = 0
    missing: int = 0
    labels: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    more: bool = False


class DropOutcome(msgspec.Struct, frozen=True, kw_only=True):
    dropped: int = 0


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter.

    Attributes:
        state: OPEN, REPLAYING, REPLAYED, DROPPED, SUPERSEDED or UNCERTAIN, as the ledger says; PENDING while
            its batch is not loaded; NOT_OPEN where its batch is loaded and has not left it out; OF_BATCH
            where it stands for rows of a batch; UNKNOWN where it is older than such records.
        value: its beginning, as text.
        batch: the label of the batch in which it was refused.
        replay: the label of its replay.
        who: who has replayed or dropped it.
        at_ms: when its replay or drop ended.
        note: why the last replay has left it open, or why it was dropped.
    """

    partition: int
    offset: int
    state: str
    reason: str
    detail: str = ""
    value: str | None = None
    batch: str = ""
    replay: str = ""
    who: str = ""
    at_ms: int | None = None
    note: str = ""


class LetterList(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of a loader, the newest first.

    Attributes:
        topic: where they are kept; "" where a file has them.
        file: the path of that file on the host that was asked; "" where a topic has them.
        letters: the newest of those, each once.
        counts: the number of all letters by state, as far as the ledger knows them.
        reasons: the number of letters by reason, of those that were looked at: as many as were asked for, or
            the 10 000 newest where a reason or a state is.
        cut: there are older ones, which are not in `letters`.
    """

    job: str
    topic: str
    file: str = ""
    letters: tuple[Letter, ...] = ()
    counts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    cut: bool = False
