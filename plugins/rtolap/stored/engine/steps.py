"""The durable steps of a tablet in their order, and the state that a crash after each step leaves.

prepare   1. make pending/<txn>, write and sync its files     nobody knows of it: recovery removes it
          2. sync the folders pending/<txn> and pending       as before
          3. append PREPARED                                  prepared: it waits for publish or abort
publish  17. (partial rows) make completing/<txn>, write and  nobody knows of it: recovery removes it
             sync whole files there
         18. (partial rows) sync the folders                  as before
          4. write and sync deletes/v<version>, its folder    (unique tables) a file nobody names: removed
          5. append PUBLISHED                                 visible: recovery goes on with step 6
          6. rename pending/<txn> (completing/<txn>) to       visible; recovery repeats what is missing
             rowsets/v<version>, sync both folders
abort     7. append ABORTED                                   recovery removes the folder
          8. remove pending/<txn>                             gone
compact   9. make compacting/c<n>, write and sync its files   nobody knows of it: recovery removes it
         10. sync the folders                                 as before
         11. write and sync deletes/c<n>, its folder          as before
         12. append COMPACTED                                 installed: recovery goes on with step 13
         13. rename compacting/c<n> to rowsets/c<n>, sync     installed
         14. remove what it replaced, once unpinned           recovery removes the rest
log      15. write log-<n + 1> with the whole state, rename   the old one counts until it is renamed
         16. remove log-<n>                                   recovery removes it

A log record is the decision; everything after it is repeated by recovery until it is done, everything before
it is thrown away. A failure of the disk before a record (steps 1 to 5, 7, 9 to 12, 17, 18) leaves the tablet
as it was. When it cannot be known whether a record became durable, or a step after it fails, the tablet stops
until it is opened again, which settles it.
"""

from __future__ import annotations

from pathlib import Path

LOCK = "tablet.lock"
LOG_PREFIX = "log-"
PENDING, ROWSETS, COMPACTING, DELETES = "pending", "rowsets", "compacting", "deletes"
COMPLETING = "completing"
FOLDERS = (PENDING, ROWSETS, COMPACTING, DELETES, COMPLETING)
FILE_SUFFIX = ".rows"


def pending_folder(root: Path, txn: int) -> Path:
    return root / PENDING / str(txn)


def rowset_folder(root: Path, rowset: str) -> Path:
    return root / ROWSETS / rowset


def completing_folder(root: Path, txn: int) -> Path:
    return root / COMPLETING / str(txn)


def compacting_folder(root: Path, rowset: str) -> Path:
    return root / COMPACTING / rowset


def deletes_file(root: Path, name: str) -> Path:
    return root / DELETES / name


def log_file(root: Path, generation: int) -> Path:
    return root / f"{LOG_PREFIX}{generation:08d}"


def file_name(at: int) -> str:
    return f"{at}{FILE_SUFFIX}"


def published_rowset(version: int) -> str:
    return f"v{version}"


def compacted_rowset(serial: int) -> str:
    return f"c{serial}"
