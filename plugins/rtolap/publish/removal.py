"""The end of a publication's table: when the publication is dropped, or its table is made anew.

Data files are the object store's and stay. What goes is the table's entry in the catalog, and its metadata.
"""

from __future__ import annotations

from pyiceberg.exceptions import NoSuchTableError

from rtolap.base.errors import AlreadyExists
from rtolap.metadata.publications import Publications
from rtolap.model.publication import Publication
from rtolap.publish.catalog import close_catalog, named, open_catalog
from rtolap.publish.columns import PUBLICATION
from rtolap.publish.snapshot import delete_files, named_by


def drop_publication(records: Publications, name: str, *, keep_table: bool) -> None:
    """Remove the publication and its table. Repeating it completes what was interrupted.

    1. mark it                     crash: publishers leave it alone; drop it again
    2. drop the table's entry      crash: metadata files that nothing names stay
    3. delete the metadata files   crash: the same
    4. remove the records          the purge may delete what snapshots named

    `keep_table`: the catalog is not asked, for one that is gone. Its table then names files that will go.
    """
    publication = records.start_drop(name)
    if not keep_table:
        drop_table(publication)
    records.end_drop(name)


def drop_table(publication: Publication) -> bool:
    """Drop the table, if it is there. Raises AlreadyExists where it is somebody else's."""
    with named(publication.catalog):
        catalog = open_catalog(publication.catalog)
        try:
            try:
                table = catalog.load_table(publication.identifier)
            except NoSuchTableError:
                return False
            owner = table.properties.get(PUBLICATION)
            if owner != publication.name:
                raise AlreadyExists(
                    f"table {publication.table} is not dropped: it is somebody else's",
                    expected=f"the property {PUBLICATION}={publication.name}",
                    found=owner or "no such property",
                    action="leave the table there with --keep-table",
                )
            metadata = table.metadata
            files = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
            files |= {path for snapshot in metadata.snapshots for path in named_by(table.io, snapshot)}
            catalog.drop_table(publication.identifier)
            delete_files(table.io, files)
        finally:
            close_catalog(catalog)
    return True
