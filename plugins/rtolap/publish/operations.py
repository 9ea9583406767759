"""Publications as commands see them: declared, listed, watched, given up. Without pyiceberg."""

from __future__ import annotations

from dataclasses import dataclass

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
    published_cuboid(publication, metadata.cube(publication.cube))
    Publications(metadata.store).declare(publication)


def publication_state(metadata: ClusterMetadata, name: str) -> PublicationState:
    """Return its state, whether its publisher runs or not. Raises NotFound."""
    records = Publications(metadata.store)
    declared = records.declaration(name)
    status, cube = records.status(name), declared.publication.cube
    ready = ready_versions(metadata.control(cube), metadata.segments(cube)).values()
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
