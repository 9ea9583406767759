"""The check that a cube may close by the application that it names."""

from __future__ import annotations

from rtolap.base.errors import DefinitionError
from rtolap.metadata.applications import ApplicationRecords
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.model.cube import Schema
from rtolap.model.validation.application import cube_watermark_problems
from rtolap.model.validation.problems import raise_all

GENERATION_BITS = 32  # of a generation's lower part, the reader's; the upper one counts assignments


def check_application(metadata: ClusterMetadata, schema: Schema) -> int:
    """Raises DefinitionError; returns the base of the cube's generations (`records.CubeControl`).

    One cube reports as a source: of two, each would be taken for the other's next reader, and windows would
    close by what the other has read.
    """
    mark = schema.cube.watermark
    if mark is None:
        return 0
    records = ApplicationRecords(metadata.store)
    applications = {name: records.definition(name) for name in records.names()}
    raise_all(f"cube {schema.cube.name}", cube_watermark_problems(schema, applications))
    for name in metadata.cubes():
        other = metadata.cube(name).watermark
        if (
            name != schema.cube.name
            and other is not None
            and (other.application, other.source) == (mark.application, mark.source)
        ):
            raise DefinitionError(
                f"cube {schema.cube.name}: source {mark.source} of application {mark.application} is taken",
                expected="a source of its own",
                found=f"cube {name} reports as it",
                action="declare one source per cube in the application",
            )
    state = records.state(mark.application)
    known = state.generations.get(mark.source, {}) if state is not None else {}
    return max((generation >> GENERATION_BITS for generation in known.values()), default=0)
