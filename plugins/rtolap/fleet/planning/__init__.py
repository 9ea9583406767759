"""Plans of what to change in a fleet: pure functions of a snapshot.

`plan` is the value, `plan_file` its JSON and Kafka's; `placement` is a fleet's replicas while a plan is made,
and where topics may stand, `rules` what no plan may make worse, whoever made it. A planner (`decisions`) is a
function of a module with its arguments: of `disks`, `leaders`, `leaders_by_load`, `drain` (of brokers and of
a disk), `add_brokers`, `factor`, `repairs` (of racks and of placement). Two ways to choose where replicas go
are shared: `transfers` between disks that are too full and those that are too idle, `idlest` for one replica
that must go. `improve` is for small fleets.
"""
