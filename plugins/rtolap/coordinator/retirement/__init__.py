"""Retirement of receivers.

`drains`: a replica set's partitions move to others. `states` and `relief`: what the leader does about replica
sets that are drained, missing or lost. `removals`: of replica sets and receivers that nothing depends on.
"""
