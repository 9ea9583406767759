"""Care of the Kafka fleet: what it is like, what to change, and changing it without losing a message.

    snapshot     a fleet at one moment, in columns: whatever is decided is a function of one
    planning     snapshot → plan of what moves where, pure
    operations   the use cases that commands, DAGs and policies call
    moves        the mover: it carries a plan out, within throttles, windows and limits, and survives its
                 crash
    isolation    the fleet held against what is declared: tenants, racks, capacities, quotas
    lifecycle    brokers and their machines: join, cordon, drain, retire
    monitoring   stages of requests, slow brokers, clients, logs
    tiers        what of tiered topics lies where

`file_format` is what the files of snapshots and plans have in common.
"""
