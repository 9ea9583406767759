"""Publications as commands see them: declared, listed, watched, given up. Without pyiceberg."""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.base.errors import Refused
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.publications import PublicationHolds, Publications, PublicationStatus, among
from rtolap.model.publication import Publication
from rtolap.model.validation.publication import published_cuboid
from rtolap.publish.versions import ready_versions


@dataclass(frozen=True)
class PublicationState:
    """A publication, and how far it is.

    Attributes:
        lag_segments: segments whose READY version the newest snapshot lacks, counted now from the records.
    """

    publication: Publication
    cuboid: str
    dropping: bool
    lag_segments: int
    ready_segments: int
    status: PublicationStatus
    holds: PublicationHolds

    @property
    def state(self) -> str:
        if self.dropping:
            return "dropping"
        if self.status.looked_ms is None and self.status.error is None:
            return "waiting"
        return "failing" if self.status.error is not None else "running"


def create_publication(metadata: ClusterMetadata, publication: Publication) -> None:
    """Declare it; an existing one uses changed settings from its next look on. Raises DefinitionError,
    NotFound, Refused."""
    cube = metadata.cube(publication.cube)
    cuboid = published_cuboid(publication, cube)
    if set(cuboid.dimensions) != set(cube.all_dimensions):
        _refuse_merged(metadata, publication)
    Publications(metadata.store).declare(publication)


def _refuse_merged(metadata: ClusterMetadata, publication: Publication) -> None:
    """Raises Refused where segments are merged: of their versions the base cuboid alone stays."""
    merged = [each.name for each in metadata.nodes.segments(publication.cube).values() if each.merged]
    if merged:
        raise Refused(
            f"publication {publication.name} names files that merged segments of {publication.cube} lack",
            expected="a publication of the cuboid with all dimensions, or a cube whose segments are apart",
            found=f"{len(merged)} merged segments, {merged[0]} among them",
            action="publish the base cuboid",
        )


def publication_state(metadata: ClusterMetadata, name: str) -> PublicationState:
    """Return its state, whether its publisher runs or not. Raises NotFound."""
    records = Publications(metadata.store)
    declared = records.declaration(name)
    status, cube = records.status(name), declared.publication.cube
    ready = ready_versions(metadata.control(cube), metadata.nodes.segments(cube)).values()
    same = status.cube_id == metadata.cube_id(cube)
    missing = [each for each in ready if not same or not among(status.newest, each.segment, each.version)]
    return PublicationState(
        declared.publication,
        published_cuboid(declared.publication, metadata.cube(cube)).name,
        declared.dropping,
        len(missing),
        len(ready),
        status,
        records.holds(name),
    )


def release_holds(metadata: ClusterMetadata, name: str) -> None:
    """Let the purge delete what snapshots name. The next look makes a snapshot of what is there."""
    Publications(metadata.store).release(name)
