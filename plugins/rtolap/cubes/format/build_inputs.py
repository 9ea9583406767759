"""The check before a build starts: its BuildSpec against the manifests and files of its inputs. No Spark.

The checks repeat what the coordinator checked before, because a build decides what history says for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.cubes.format import history
from rtolap.cubes.format.file_states import FileToLookAt, Looked, look_here
from rtolap.cubes.format.manifest import MANIFEST_NAME, FileEntry, HistoryManifest, StagedManifest, decode
from rtolap.model.batch import BatchSpec
from rtolap.model.build_spec import BuildPart, BuildSpec
from rtolap.model.cube import cuboids
from rtolap.model.offsets import Offsets, PartRange
from rtolap.object_store.store import ObjectStore, open_store

_UPLOAD_AGAIN = (
    "the coordinator has receivers upload it again when it hears of this; else `rtolap segments requeue` does"
)
_READ_AGAIN = (
    "the coordinator has the segment's events read again from Kafka when it hears of this; else `rtolap "
    "segments requeue` does"
)


class InputFile(NamedTuple):
    """A file to read, its line in a manifest, and what to do when it is not so.

    Attributes:
        path: relative to the store's root.
    """

    path: str
    entry: FileEntry
    action: str


class BuildInputs(NamedTuple):
    """Parquet files to read, relative to the store's root, and what they hold."""

    files: list[str]
    events: int
    rows: int
    bytes: int


def read_specs(argument: str) -> list[BuildSpec]:
    """Read a build specification, or a list of them, from a local path or a URI.

    Raises DefinitionError or NotFound.
    """
    data = read_text(argument)
    try:
        if data.lstrip().startswith(b"["):
            return decode_json(data, list[BuildSpec])
        return [decode_json(data, BuildSpec)]
    except msgspec.MsgspecError as error:
        raise DefinitionError(f"{argument} is not a build specification", found=str(error)) from error


def read_batch_spec(argument: str) -> BatchSpec:
    """Read the plan of a batch from a local path or a URI. Raises DefinitionError or NotFound."""
    try:
        return decode_json(read_text(argument), BatchSpec)
    except msgspec.MsgspecError as error:
        raise DefinitionError(f"{argument} is not the plan of a batch", found=str(error)) from error


def read_text(argument: str) -> bytes:
    """Return the bytes of a specification, at a local path or a URI. Raises NotFound."""
    folder, _, name = (argument if "://" in argument else Path(argument).absolute().as_uri()).rpartition("/")
    return open_store(folder).read(name)


class DeclaredInputs(NamedTuple):
    """The inputs of a build by their manifests, whose files are still to be looked at."""

    files: tuple[InputFile, ...]
    events: int

    @property
    def bytes(self) -> int:
        return sum(file.entry.bytes for file in self.files)

    def verified(self, looked: Sequence[Looked]) -> BuildInputs:
        """Compare with the files that were looked at, in order. Raises Corrupted, and errors of looking."""
        for file, state in zip(self.files, looked, strict=True):
            history.check_file(file.path, file.entry, state, action=file.action)
        entries = [file.entry for file in self.files]
        return BuildInputs(
            [file.path for file in self.files], self.events, sum(each.rows for each in entries), self.bytes
        )


def verify_inputs(store: ObjectStore, spec: BuildSpec) -> BuildInputs:
    """Verify manifests, checksums and ranges of all inputs. Raises Refused, Corrupted or NotFound."""
    declared = declared_inputs(store, spec)
    return declared.verified(
        look_here(spec.object_store, [FileToLookAt(file.path) for file in declared.files])
    )


def declared_inputs(store: ObjectStore, spec: BuildSpec) -> DeclaredInputs:
    """Verify manifests and ranges of all inputs. Raises Refused, Corrupted or NotFound."""
    check_ranges_join(spec)
    files: list[InputFile] = []
    events = 0
    for part in spec.parts:
        path = f"{part.path}/{MANIFEST_NAME}"
        manifest = decode(store.read(path), StagedManifest, path)
        check_part(spec, part, manifest)
        files += [InputFile(f"{part.path}/{file.name}", file, _UPLOAD_AGAIN) for file in manifest.files]
        events += manifest.events
    if spec.previous_location is not None:
        previous = history.read_manifest(store, spec.previous_location)
        check_previous(spec, previous)
        base = history.entry_of(previous, cuboids(spec.cube_definition)[0])
        files += [
            InputFile(f"{spec.previous_location}/{file.name}", file, _READ_AGAIN) for file in base.files
        ]
        events += previous.events
    elif spec.version != 1 and not spec.is_rebuilt:
        raise Refused(f"version {spec.version} of {spec.cube}/{spec.segment} needs a previous version")
    return DeclaredInputs(tuple(files), events)


def check_ranges_join(spec: BuildSpec) -> None:
    """Check that the parts hold each offset from the previous vector to `covered` once. Raises Refused."""
    by_partition: dict[int, list[PartRange]] = {}
    for part in spec.parts:
        for piece in part.ranges:
            by_partition.setdefault(piece.partition, []).append(piece)
    for partition in sorted(set(by_partition) | set(spec.covered)):
        pieces = sorted(by_partition.get(partition, ()), key=lambda piece: (piece.start, piece.end))
        end = spec.covered.get(partition)
        if end is None:
            raise _no_join(spec, partition, "a covered offset of the partition", "none")
        begin = pieces[0].start if pieces else end
        at = spec.previous_covered.get(partition, spec.first_offsets.get(partition, begin))
        for piece in pieces:
            if piece.start != at:
                kind = "a gap" if piece.start > at else "an overlap"
                raise _no_join(spec, partition, f"a part from offset {at}", f"{kind}: {piece}")
            at = piece.end
        if at != end:
            raise _no_join(spec, partition, f"parts up to offset {end}", f"parts up to {at}")


def check_part(spec: BuildSpec, part: BuildPart, manifest: StagedManifest) -> None:
    """Check that a staged part is the one that the spec means. Raises Corrupted."""
    expected = (spec.cube, spec.segment, spec.version, part.replica_set, _as_vector(part.ranges), part.events)
    found = (
        manifest.cube,
        manifest.segment,
        manifest.version,
        manifest.replica_set,
        _as_vector(manifest.ranges),
        manifest.events,
    )
    if found != expected:
        raise Corrupted(f"staged part {part.path} is another one", expected=expected, found=found)


def check_previous(spec: BuildSpec, manifest: HistoryManifest) -> None:
    """Check that the previous version is the one that the spec means. Raises Corrupted."""
    expected = (spec.cube, spec.segment, spec.version - 1, dict(spec.previous_covered))
    found = (manifest.cube, manifest.segment, manifest.version, dict(manifest.covered))
    if found != expected:
        raise Corrupted(
            f"previous version {spec.previous_location} is another one", expected=expected, found=found
        )


def check_finished(spec: BuildSpec, manifest: HistoryManifest) -> None:
    """Check that a manifest found where this build should write is its own. Raises Refused."""
    covered: Offsets = dict(manifest.covered)
    expected = (spec.build_id, spec.version, dict(spec.covered))
    if (manifest.build_id, manifest.version, covered) != expected:
        raise Refused(
            f"{spec.location} holds another build",
            expected=expected,
            found=(manifest.build_id, manifest.version, covered),
            action="ask the coordinator for a new build",
        )


def _as_vector(ranges: tuple[PartRange, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple(sorted((piece.partition, piece.start, piece.end) for piece in ranges))


def _no_join(spec: BuildSpec, partition: int, expected: str, found: str) -> Refused:
    return Refused(
        f"{spec.cube}/{spec.segment} cannot be built: its parts do not join in partition {partition}",
        expected=expected,
        found=found,
        action="queue the segment again, so that the missing range is uploaded",
    )
