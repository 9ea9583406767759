"""docs/airflow/operators.md lists the operators and sensors with the parameters that they have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.operator_reference import classes, parameters, table
from tests.support.pages.texts import text_of

VALUES: dict[str, Any] = {"operation": "repair", "kind": "rack", "plan_id": "p", "answer": {}, "planned": {}}


def test_the_page_has_the_table_that_the_signatures_make() -> None:
    assert table() in text_of("airflow"), "python -m tests.support.operator_reference"


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_a_class_takes_every_parameter_that_is_listed(kind: Any) -> None:
    listed = parameters(kind)
    arguments = {
        name: VALUES.get(name, "1") if default is type(default) or "empty" in repr(default) else default
        for name, default in listed.items()
    }
    made = kind(task_id="t", **arguments)
    assert made.task_id == "t"
