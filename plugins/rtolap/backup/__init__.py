"""Backup and restore of the cluster's metadata: what services keep in ZooKeeper, and nothing else.

    cluster_copy  all records of one moment, out of a tree that goes on changing
    file_format   the bytes of a backup: header, signature, records
    copy_store    a backup, read as a store is read
    carried       which records are restored as they are, which are changed, which are left
    positions     compared with Kafka: the topics, and where receivers will read from
    versions      compared with the object store: parts, versions and merged sets that are gone or are newer
    restoring     the steps of a restore, and what a crash after each leaves behind

History is in the object store, events are in Kafka, stored tables and loaders are in the ledger, and
subscriptions are in ZooKeeper of their source. A restore joins the records with what these hold by then: see
docs/operations/backup.md.

Invariants. A backup holds the records of one moment, or is not made. A restored cluster counts no event twice
and passes over none: receivers read again whatever restored history does not hold, and what Kafka does not
hold any more is named before anything is written.
"""
