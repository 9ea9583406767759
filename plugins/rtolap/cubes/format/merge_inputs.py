"""The check before a merge is written: its MergeSpec against the manifests of its members. No Spark.

A merge reads the base cuboid of each member. The set that it writes has to hold the events of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, DefinitionError, Refused
from rtolap.cubes.format import history
from rtolap.cubes.format.build_inputs import DeclaredInputs, InputFile, read_text
from rtolap.cubes.format.manifest import CuboidEntry, MergedManifest, decode, encode
from rtolap.cubes.format.tries import drop_unnamed
from rtolap.model.cube import cuboids
from rtolap.model.merging.specs import MergeSpec
from rtolap.object_store.store import ObjectStore

_REQUEUE = "`rtolap segments requeue CUBE SEGMENT` builds it again; then plan the merge again"


def read_merge_specs(argument: str) -> list[MergeSpec]:
    """Read a list of merge specifications from a local path or a URI. Raises DefinitionError or NotFound."""
    try:
        return decode_json(read_text(argument), list[MergeSpec])
    except msgspec.MsgspecError as error:
        raise DefinitionError(f"{argument} is not a list of merges", found=str(error)) from error


def declared_members(store: ObjectStore, spec: MergeSpec) -> DeclaredInputs:
    """Verify the manifests of all members. Raises Refused, Corrupted or NotFound."""
    if len({member.segment for member in spec.members}) != len(spec.members) or not spec.members:
        raise Refused(f"merge {spec.merge} of {spec.cube} does not name each member once")
    base = cuboids(spec.cube_definition)[0]
    files: list[InputFile] = []
    for member in spec.members:
        manifest = history.read_manifest(store, member.location)
        found = (manifest.cube, manifest.segment, manifest.version, manifest.events)
        expected = (spec.cube, member.segment, member.version, member.events)
        if found != expected:
            raise Corrupted(
                f"the manifest of {member.location} is not of the member that is to be merged",
                expected=expected,
                found=found,
                action=_REQUEUE,
            )
        entry = history.entry_of(manifest, base)
        files += [InputFile(f"{member.location}/{file.name}", file, _REQUEUE) for file in entry.files]
    return DeclaredInputs(tuple(files), spec.events)


def finish_set(store: ObjectStore, spec: MergeSpec, entries: Sequence[CuboidEntry]) -> MergedManifest:
    """Write the manifest, as the last write of a merge: from here on it can be committed.

    Return that of a driver that came first. Raises Corrupted or NotFound where its set cannot be committed.
    """
    if store.exists(history.manifest_path(spec.location)):
        first = verify_set(store, spec)
        drop_unnamed(store, spec.location, entries, first.cuboids)
        return first
    manifest = MergedManifest(
        cube=spec.cube,
        merge=spec.merge,
        level=spec.level,
        start_ms=spec.start_ms,
        end_ms=spec.end_ms,
        members=spec.members,
        events=spec.events,
        cuboids=tuple(entries),
    )
    store.write(history.manifest_path(spec.location), encode(manifest))
    return manifest


def read_set(store: ObjectStore, location: str) -> MergedManifest:
    """Read the manifest of a set. Raises NotFound where there is none, and Corrupted."""
    path = history.manifest_path(location)
    return decode(store.read(path), MergedManifest, path)


def verify_set(store: ObjectStore, spec: MergeSpec) -> MergedManifest:
    """Do as `verify_set_files`. Raises Refused for the set of another merge too."""
    manifest = read_set(store, spec.location)
    found = (manifest.cube, manifest.merge, manifest.members)
    if found != (spec.cube, spec.merge, spec.members):
        raise Refused(
            f"{spec.location} holds another set",
            expected=f"merge {spec.merge} of {len(spec.members)} segments",
            found=f"merge {manifest.merge} of {len(manifest.members)} segments",
            action="plan the merge again",
        )
    return verify_set_files(store, spec.location)


def verify_set_files(store: ObjectStore, location: str) -> MergedManifest:
    """Verify the checksums of all files of a set, and the events of each cuboid.

    Raises Corrupted, NotFound.
    """
    manifest = read_set(store, location)
    for cuboid in manifest.cuboids:
        history.verify_files(store, location, cuboid.files)
        events = history.count_events(store, location, cuboid.files)
        if events != manifest.events:
            raise Corrupted(
                f"cuboid {cuboid.name} of {location} holds another number of events",
                expected=manifest.events,
                found=events,
                action="plan the merge again",
            )
    return manifest
