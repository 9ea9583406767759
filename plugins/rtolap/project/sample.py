"""A sample of the first records of a topic, in any format: leaves with values, and how they are read.

json        objects, as they are
csv         `csv_sample`: fields by position, with the names of a header or of their number
avro, protobuf   `registered_sample`: by the schemas that the records name
"""

from __future__ import annotations

from collections.abc import Sequence

from rtolap.base.errors import DefinitionError
from rtolap.events.formats.readers import Registries
from rtolap.model.formats.record_format import FormatName, RecordFormat
from rtolap.project.csv_sample import csv_sample
from rtolap.project.records import Record
from rtolap.project.registered_sample import is_framed, registered_format, registered_sample
from rtolap.project.values import Sample, leaves_of, parse_records

JSON_SHARE_MIN = 0.5  # of the records that have a value


def sample_of(
    topic: str, records: Sequence[Record], form: FormatName | None, registry: str, registries: Registries
) -> Sample:
    """Return what the records hold. form: their format; None: they show it. registry: by name.

    Raises DefinitionError where no record is read, Unavailable where the registry does not answer.
    """
    form = form or format_of(records, registry, registries)
    match form:
        case "csv":
            sample = csv_sample(records)
        case "avro" | "protobuf":
            sample = registered_sample(records, form, registry, registries)
        case _:
            sample = _of_json(records)
    if not sample.sound:
        raise DefinitionError(
            f"no record of topic {topic} is {sample.broken_as}",
            expected="JSON objects, lines of CSV, or Avro or Protobuf with the id of a registered schema",
            found=f"{len(records)} records, the first begins with {(records[0].value or b'')[:40]!r}",
            action="name the format by --format; or declare the table by hand: "
            "docs/definitions/record_formats.md says how",
        )
    return sample


def format_of(records: Sequence[Record], registry: str, registries: Registries) -> FormatName:
    """Return the format that most records show."""
    values = [record.value for record in records if record.value]
    objects = sum(each is not None for each in parse_records(values))
    if not values or objects >= JSON_SHARE_MIN * len(values):
        return "json"
    framed = [value for value in values if is_framed(value)]
    if 2 * len(framed) > len(values):
        return registered_format(framed, registry, registries)
    if objects or any(b"\0" in value for value in values):
        return "json"
    return "csv"


def _of_json(records: Sequence[Record]) -> Sample:
    parsed = parse_records(record.value for record in records)
    sound = [record for record, value in zip(records, parsed, strict=True) if value is not None]
    leaves = leaves_of(each for each in parsed if each is not None)
    return Sample(RecordFormat(), leaves, {}, sound, [], "a JSON object")
