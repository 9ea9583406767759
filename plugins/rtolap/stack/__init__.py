"""The local stack: real servers and rtolap's own services as tracked processes of one machine.

Nouns
    ProcessSpec      what to run, where, and how to see that it answers
    ManagedProcess   a spec with its pid record: starts, waits until ready, stops, tells a crash
    JavaArtifacts    the jars that ZooKeeper and Kafka run from
    StackLayout      folders and files of one stack
    StackState       ports and components of a stack, as kept in `stack.json`
    Component        a named part of the stack, its dependencies and its spec
    Claim            the ports that one stack of this user has, from their choice to its end
    pump             the small process that writes a part's log and bounds its size

Invariants
    A process is known by pid *and* start time; a recycled pid is never signalled.
    Every process leads a session of its own, so that its children can be ended with it.
    Nothing is reported ready before it has answered a request of its own protocol, on a port that it holds
    itself: another program's answer does not count.
    A port is claimed under a lock before it is used; two stacks never choose the same.
    Secrets live in files of mode 0600; they are never on a command line or in a log.

It never restarts a part by itself (`up` does), and never listens beyond loopback.
"""
