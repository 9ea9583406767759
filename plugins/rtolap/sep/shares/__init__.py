"""Shares divide a subscription's rows among several consumers that are active at once.

A row belongs to one share for ever, by its hash: it stays there when its region moves, splits or merges. One
consumer holds a share at a time and delivers its rows; every consumer that holds a share has ports, takes
calls of any rows, and hands the events of each share to its holder. A call is acknowledged when all holders
have made its events durable.

`division` divides a call. `plan` says which consumer holds which share, `states` is the life of a share in a
consumer, and `held` executes its actions. `nodes` are the records in ZooKeeper. `router` sends each part to
its holder, over `endpoint` where that is another process. `lease` says how long this process may begin work
without having heard from ZooKeeper.

docs/decisions/0059-shares-of-a-subscription.md says why it is so.
"""
