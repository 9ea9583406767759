"""Bodies of loads: taken by any front end and any storage node, decided by the master.

The process that takes a body decodes it and sends its rows to the nodes itself. It asks the master only
for the transaction's decisions. Its death ends the bodies that it takes, and no other.

A load goes `load_routes` → `body_pipe` → `load` (`distribution`, `error_files`) → `writer`
(`node_sender`, `node_directory`) → `committing`; `group_commit` is the whole of several small ones.
`decisions` is the seam to the master: its own objects where it is this process, else `decision_client`
(`decision_messages`). `ports` are those of a process that serves it; `request` reads headers, `messages`
has the texts that clients match, `quorum` the rule of majorities.

Invariants: rows are seen only by a commit of the master; limits of bodies and memory are those of one
process; every decision may be asked for again, so an election in the middle of a body costs it only time.
"""
