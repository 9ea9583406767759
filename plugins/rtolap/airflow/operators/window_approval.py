"""Approval, by a person in Airflow, of a window that waits for too long; the response is recorded.

    WindowApprovalOperator ── Approve ──▶ ApproveWindowOperator ──▶ the window may close
          │  └────────── Reject ───▶ the window keeps waiting
          └── complete meanwhile ──▶ the question is withdrawn (skipped)

Who responded is known from Airflow, which has authenticated them. Nobody's silence approves anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, BaseOperatorLink, Context, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput

from rtolap.airflow.errors import final_at_once
from rtolap.airflow.hooks.connection import DEFAULT_CONN_ID
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import WindowLink
from rtolap.airflow.triggers.answer import NO_QUESTION, AnswerTrigger
from rtolap.airflow.windows import Window, explain
from rtolap.airflow.words import iso, question, state_of
from rtolap.model.instants import instant_ms
from rtolap.protocols.watermark.messages import BY_MAX, REASON_MAX, Explanation

REASON = "reason"
NO_REASON = "no reason given"


class WindowApprovalOperator(ApprovalOperator):
    """Asks whether the windows of `application` that end at or before `window_end` may close as they are.
    Without an answer they wait for `lateness_ms` beyond it.

    This is Airflow's own approval. The question shows what the window waits for, Approve goes on, and Reject
    skips the tasks directly after it. It waits without end. A window that may close by now, or becomes
    complete, needs no answer, and the task is skipped. The result is Airflow's, with `responded_by_user`.
    """

    template_fields: Sequence[str] = ("application", "window_end", "lateness_ms", "subject", "body")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (WindowLink(),)

    def __init__(
        self,
        *,
        application: str,
        window_end: str | int | datetime,
        lateness_ms: int | str = 0,
        poll_s: float = 5.0,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        params: Any = None,  # Airflow hands the DAG's to every operator; the form has a field of its own
        **kwargs: Any,
    ) -> None:
        reason = Param(
            "", type="string", title="Reason", description="Why it may close; recorded.", source="task"
        )
        super().__init__(
            subject="Approve an incomplete window?",  # both are written when it asks
            body=None,
            params={REASON: reason},
            defaults=None,
            response_timeout=None,
            **kwargs,
        )
        self.application = application
        self.window_end = window_end
        self.lateness_ms = lateness_ms
        self.poll_s = poll_s
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> Any:
        explanation = self._explain()
        if explanation.may_close:
            raise AirflowSkipException(f"nobody is asked: {state_of(explanation)}")
        if is_retry(context["ti"], self.retries or 0):
            # To ask again would wipe out an answer that the lost try has not read. If nobody was asked yet,
            # the trigger says so.
            self.log.info("an earlier try has asked, so this one waits: %s", state_of(explanation))
            self._wait(context)
        self._ask(context, explanation)

    def _ask(self, context: Context, explanation: Explanation) -> NoReturn:
        self.subject, self.body = question(explanation)
        self.log.info("asking: %s", state_of(explanation))
        with suppress(TaskAwaitingInput):
            super().execute(context)
        self._wait(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Take a person's answer. An answer to another question, which `AddressedTrigger` says may come, is
        ignored."""
        said_by_trigger = dict(event)
        ti_id = str(context["task_instance"].id)
        # Airflow's API addresses the answer to the task, and names none.
        if said_by_trigger.pop("ti_id", ti_id if "chosen_options" in event else None) != ti_id:
            # Not asked again: that would wipe out an answer which has come meanwhile.
            self.log.info("the event is another task's, so the wait goes on: %s", event)
            self._wait(context)
        if NO_QUESTION in said_by_trigger:
            self._ask(context, self._explain())
        if "explanation" in said_by_trigger:
            explanation = Explanation.model_validate(said_by_trigger["explanation"])
            raise AirflowSkipException(f"the question is withdrawn: {state_of(explanation)}")
        answer = super().execute_complete(context, said_by_trigger)
        chosen = ", ".join(answer["chosen_options"])
        self.log.info("%s, says %s", chosen, responder(answer) or "nobody")
        return answer

    def _wait(self, context: Context) -> NoReturn:
        """Wait for the window, or for the answer, which may have been given already."""
        window = self._window()
        self.defer(
            trigger=AnswerTrigger(
                ti_id=str(context["task_instance"].id),
                options=self.options,
                params=self.serialized_params,
                application=window.application,
                window_end_ms=window.end_ms,
                lateness_ms=window.lateness_ms,
                poll_s=self.poll_s,
                rtolap_conn_id=self.rtolap_conn_id,
            ),
            method_name="execute_complete",
        )

    def _explain(self) -> Explanation:
        with final_at_once(), RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            return explain(coordinator, self._window())

    def _window(self) -> Window:
        return Window(self.application, instant_ms(self.window_end), int(self.lateness_ms))


class ApproveWindowOperator(BaseOperator):
    """Records a person's approval at the coordinator: windows up to `window_end` may close.

    `answer` is the result of a `WindowApprovalOperator`. Its responder is the user whom Airflow has signed
    in. Without a responder, or with another answer than Approve, nothing is approved and the task fails.
    Returns the recorded approval.
    """

    template_fields: Sequence[str] = ("application", "window_end", "answer")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (WindowLink(),)

    def __init__(
        self,
        *,
        application: str,
        window_end: str | int | datetime,
        answer: Any,
        rtolap_conn_id: str = DEFAULT_CONN_ID,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = application
        self.window_end = window_end
        self.answer = answer
        self.rtolap_conn_id = rtolap_conn_id

    def execute(self, context: Context) -> dict[str, str]:
        by = responder(self.answer)
        if by is None or self.answer["chosen_options"] != [ApprovalOperator.APPROVE]:
            raise AirflowFailException(f"nobody has approved this: {self.answer}")
        until_ms = instant_ms(self.window_end)
        text = str(self.answer["params_input"].get(REASON) or "").strip() or NO_REASON
        ti = context["ti"]
        place = f" (Airflow: {ti.dag_id}, run {ti.run_id})"
        by, reason = short(by, BY_MAX), short(text, REASON_MAX - len(place)) + place
        with final_at_once(), RtolapHook(self.rtolap_conn_id).coordinator() as coordinator:
            known = coordinator.application(self.application).approvals
            if any(
                (approval.until_ms, approval.by, approval.reason) == (until_ms, by, reason)
                for approval in known
            ):
                self.log.info("recorded already, by an earlier try")
            else:
                coordinator.approve_windows(self.application, until_ms, by, reason)
        self.log.info("%s lets windows of %s up to %s go: %s", by, self.application, iso(until_ms), reason)
        return {"application": self.application, "until": iso(until_ms), "by": by, "reason": reason}


def is_retry(ti: Any, retries: int) -> bool:
    """Return True if an earlier try of this task was lost; False for the first try after somebody has cleared
    it, who allows `retries` more of them.
    """
    return int(ti.try_number) > 1 + int(ti.max_tries) - retries


def short(text: str, characters: int) -> str:
    """Shorten a text to what the coordinator records. A person who wrote more still approves the window."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def responder(answer: Mapping[str, Any]) -> str | None:
    """Return the name of who answered, with their id where it is another; None if nobody has."""
    user = answer.get("responded_by_user")
    if not user:
        return None
    return str(user["name"]) if user["name"] == user["id"] else f"{user['name']} ({user['id']})"
