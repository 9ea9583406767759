"""History as an Iceberg table: READY versions of a cube's cuboid, committed for engines that read those.

Nouns. A *publication* declares which cuboid goes into which table of which catalog. A *look* compares the
READY versions with what the newest snapshot names. *Holds* are the versions whose files stay, since snapshots
name them.

Invariants. The newest snapshot names the files of READY versions only, each once; a segment's old version
goes in the snapshot in which its new one comes. No file is rewritten. What a snapshot names is held before.
The cluster's records are the authority: the table follows them, whatever others did to it.

Never. It deletes no data file, and no snapshot that a tag of somebody else names. Only this room and its
tests import pyiceberg; `operations` and `versions` do without it.
"""
