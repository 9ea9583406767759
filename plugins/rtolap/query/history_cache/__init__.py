"""A disk cache of history files, so that a remote object store does not slow statements about the last days.

Nouns: a **copy** is a history file on the local disk, under the same path as in the store; a **placement**
is which files are wanted on the disk: those of the newest segments over all cubes, down to the budget; a
**lease** holds a copy while a statement reads it.

    segment records ─▶ keeper: placement ─▶ what is missing ─▶ copies, one after the other, rate limited
                         │                                        ▲
                         └─▶ what must go ────────────────────────┘ room
    statements ─▶ leases of copies; what has none is read from the store

Invariants
- A path in the store names one immutable file: a version that replaces another has another path. So a copy
  can be whole or damaged, but never out of date.
- A copy counts once it has its name, and gets it after its size and checksum were found right. Who finds a
  copy damaged later reads the store, and the copy goes.
- The bytes on the disk, those that are being written among them, never exceed the budget. A copy under a
  lease counts until it is removed.
- Reading never changes what is placed.
- One thread writes and removes: the keeper's. Statements take leases and wait for nothing.

It never writes to the object store, and removes nothing outside its own marked folder.
"""
