"""Operators that do to a cube what a person has approved in Airflow's own form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from rtolap.airflow.operators.coordinator import CubeOperator
from rtolap.airflow.operators.fleet import approver


class ApprovedCubeOperator(CubeOperator):
    """Base of what is done to a cube once its plan is approved. `planned` is the result of the plan's task,
    `answer` that of Airflow's approval; without an approval, the task fails and nothing is done."""

    template_fields: Sequence[str] = ("cube", "planned", "answer")

    def __init__(self, *, planned: Any, answer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.planned = planned
        self.answer = answer

    def execute(self, context: Context) -> Any:
        self.log.info("approved by %s", approver(self.answer))
        return super().execute(context)
