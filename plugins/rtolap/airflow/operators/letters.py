"""Operators that replay or drop dead letters of a loader, by the loader's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from rtolap.airflow.declared import find_loader
from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import PageLink
from rtolap.airflow.operators.coordinator import started_by
from rtolap.base.errors import DefinitionError
from rtolap.protocols.loader.client import LoaderClient
from rtolap.protocols.loader.letters import REPLAY_TIMEOUT_S, DropRequest, LetterSelection, ReplayRequest

REPLAY, DROP = "replay", "drop"


class DeadLettersOperator(BaseOperator):
    """Replays open dead letters of a loader that runs on the agent, or drops them, as `action` says: those of
    a `reason`, and of `places` in its topic (PARTITION/OFFSET, comma-separated); without either, all.

    Each is loaded once, however often the task runs. `why` is kept with a drop; `out_of_order` replays also
    where an older row takes the place of a newer one. Who has started the run counts as the person. Result:
    `ReplayOutcome` or `DropOutcome` as JSON.
    """

    template_fields: Sequence[str] = ("loader", "action", "reason", "places", "why", "out_of_order")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (PageLink(),)

    def __init__(
        self,
        *,
        loader: str,
        action: str,
        reason: str = "",
        places: str = "",
        why: str = "",
        out_of_order: bool | str = False,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loader = loader
        self.action = action
        self.reason = reason
        self.places = places
        self.why = why
        self.out_of_order = out_of_order
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        who = f"airflow:{started_by(context)}"
        hook = RtolapHook(self.rtolap_conn_id)
        with final_at_once():
            with hook.agent() as agent:
                port = find_loader(agent, self.loader).port
            with hook.loader(port, timeout_s=REPLAY_TIMEOUT_S) as client:
                result = self._act(client, who)
        return result

    def _act(self, client: LoaderClient, who: str) -> dict[str, Any]:
        places = tuple(place for each in self.places.split(",") if (place := each.strip()))
        selection = LetterSelection(reason=self.reason, places=places)
        if self.action == DROP:
            dropped = client.drop(DropRequest(who=who, why=self.why, selection=selection))
            self.log.info("%s: %d dead letters dropped by %s", self.loader, dropped.dropped, who)
            return msgspec.structs.asdict(dropped)
        if self.action != REPLAY:
            raise DefinitionError("not an action", expected=f"{REPLAY} or {DROP}", found=repr(self.action))
        out_of_order = str(self.out_of_order).lower() == "true"
        done = client.replay(ReplayRequest(who=who, selection=selection, out_of_order=out_of_order))
        self.log.info("%s: %d loaded, %d refused again", self.loader, done.loaded, done.refused)
        for problem in done.problems:
            self.log.warning("%s: %s", self.loader, problem)
        return msgspec.to_builtins(done)  # type: ignore[no-any-return]
