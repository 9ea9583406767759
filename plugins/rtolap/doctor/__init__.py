"""The operator's first aid: looks at each server that this host's settings name, and says what is wrong, with
the command that mends it.

    findings      what a look finds, and how looks are made, each within its time
    host          this machine: Java, open files, disks, files with secrets
    zookeeper     its servers, their versions, and whether the cluster's nodes are closed to others
    kafka         clusters, their brokers, topics of tables, settings that lose events
    storage       the object store: a file is written, read and deleted
    services      coordinators, receivers, agent, query service, front ends: health and clocks
    examination   all of it
    bundle/       what somebody needs who helps from afar, in one archive without secrets

A look changes nothing but for the probe in the object store, which it deletes, and the cluster's node in
ZooKeeper, which is made where it is missing.
"""
