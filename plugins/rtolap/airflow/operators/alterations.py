"""Changes of a running cube to what its file declares: planned, approved by a person, and made.

    PlanAlterationOperator ─▶ Approve ─▶ AlterCubeOperator

Each step may be repeated: a change that an earlier try has made is found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from rtolap.airflow.operators.approved import ApprovedCubeOperator
from rtolap.airflow.operators.coordinator import CubeOperator
from rtolap.base.settings import Settings
from rtolap.model.instants import utc_text
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import Alteration, AlterRequest
from rtolap.protocols.coordinator.operations import altered_cube

NAMES_MAX = 20  # of segments and columns in the form; the result has all


class PlanAlterationOperator(CubeOperator):
    """Plans the change of a cube to what `file` declares, a YAML file or folder below `include`, and changes
    nothing. The task is skipped when the cube has that definition. `renamed`: column → the one that it goes
    on with, or their JSON; `older`: see `rtolap alter`.

    Result: the request that is to be approved, the plan (`Alteration` as JSON), and `text` for the person.
    """

    template_fields: Sequence[str] = ("cube", "file", "renamed", "older")

    def __init__(
        self,
        *,
        file: str,
        renamed: Mapping[str, str] | str | None = None,
        older: str = "null",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.file = file
        self.renamed = renamed
        self.older = older

    def call(self, coordinator: CoordinatorClient) -> dict[str, Any]:
        definitions = read_definitions(_below_include(self.file))
        cube = definitions.cubes.get(self.cube)
        if cube is None:
            known = ", ".join(sorted(definitions.cubes)) or "none"
            raise AirflowFailException(f"{self.file} declares no cube {self.cube}, but {known}")
        renamed = json.loads(self.renamed) if isinstance(self.renamed, str) else self.renamed
        request = AlterRequest.model_validate(
            {
                "definition": msgspec.to_builtins(cube),
                "table": msgspec.to_builtins(definitions.tables[cube.table]),
                "renamed": renamed or {},
                "older": self.older,
                "dry_run": True,
            }
        )
        plan = altered_cube(coordinator, self.cube, request)
        if not plan.changes and not plan.table_columns:
            raise AirflowSkipException(f"{self.cube} has this definition already")
        return {
            "request": request.model_dump(mode="json"),
            "plan": plan.model_dump(mode="json"),
            "text": alteration_text(plan),
        }


class AlterCubeOperator(ApprovedCubeOperator):
    """Makes the approved change. `planned` is the result of the plan's task, `answer` that of Airflow's
    approval; without an approval, nothing changes. Segments are dropped for good only where the approved plan
    said that some are. Result: what was done (`Alteration` as JSON)."""

    def call(self, coordinator: CoordinatorClient) -> dict[str, Any]:
        plan = Alteration.model_validate(self.planned["plan"])
        request = AlterRequest.model_validate(
            {
                **self.planned["request"],
                "dry_run": False,
                "new_revision": plan.revision is not None,
                "drop_segments": bool(plan.dropped_segments),
            }
        )
        done = altered_cube(coordinator, self.cube, request)
        if not done.applied:
            self.log.info("%s has this definition since an earlier try", self.cube)
        return done.model_dump(mode="json")


def alteration_text(plan: Alteration) -> str:
    """Return what the form shows: each change, what follows from it, and what is lost."""
    lines = [f"- {each.setting}: {each.before} → {each.after}: {each.meaning}" for each in plan.changes]
    for what, names in (
        ("the table gets", plan.table_columns),
        ("new cuboids", plan.new_cuboids),
        ("older events do not have", plan.added_columns),
        ("statements can name no more", plan.gone_columns),
        ("**dropped for good by the next retention**", plan.dropped_segments),
    ):
        if names:
            more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
            lines.append(f"- {what}: {', '.join(names[:NAMES_MAX])}{more}")
    if plan.revision is not None and plan.since_ms is not None:
        lines.append(
            f"- {plan.revision} holds the events from {utc_text(plan.since_ms)} on, or a later moment"
        )
    if plan.fills_from_ms is not None:
        source = "the topic" if plan.filled_by == "topic" else "batches, which a person applies"
        lines.append(f"- older events are filled in from {utc_text(plan.fills_from_ms)} on, by {source}")
    return "\n".join(lines)


def _below_include(file: str) -> Path:
    """Return the path of a file of this deployment's definitions. Fails the task for another one."""
    include = Settings().include_dir.resolve()
    path = (include / file).resolve()
    if not path.is_relative_to(include) or not path.exists():
        raise AirflowFailException(f"{file} is not a file or folder below {include.name}")
    return path
