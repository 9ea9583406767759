"""Kafka's tiered topics: what lies on the brokers' disks, what was copied, what is in remote storage only.

    earliest        earliest local     copied up to          latest
       │  remote only     │   local and remote   │   local only   │

Only closed segments are copied, and only copied ones are removed from disks by `local.retention.*`, so that
the three states are three ranges of offsets in each partition. `view` holds them in columns and says where
copying is behind, `collect` asks brokers for them, `copy_metrics` reads what brokers' agents tell of it.
Nothing here changes anything.
"""
