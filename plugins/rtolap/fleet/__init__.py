"""Care of the Kafka fleet: its state, plans to change it, and changes without the loss of a message.

    snapshot     a fleet at one moment, in columns: every decision is a function of one
    planning     snapshot → plan of what moves where, pure
    operations   the use cases that commands, DAGs and policies call
    moves        the mover: it carries a plan out, within throttles, hours and limits, and survives its crash
    isolation    the fleet compared with its registry: tenants, racks, capacities, quotas
    lifecycle    brokers and their machines: join, cordon, drain, retire
    monitoring   stages of requests, slow brokers, clients, logs
    tiers        where the data of tiered topics lies

`file_format` is the common part of the files of snapshots and plans.
"""
