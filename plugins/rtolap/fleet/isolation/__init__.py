"""Isolation compares the registry's declarations with the clusters as they are.

`registry` reads what is declared and says which cluster of it a snapshot is of; whoever submits a plan asks
it. `placement` says where replicas of each topic may stand; planners take it as their hard rule. `audit`
compares a registry with snapshots and names each difference with what repairs it; `racks`, `topics`,
`capacity` and `clients` are its checks, `topic_users` asks who uses topics. `quotas` are the differences of
client quotas, and their alterations; to apply those is the one thing here that changes a cluster. All else
but the reading is a pure function of registry and snapshots.
"""
