"""Commands that keep a cluster: backups of its metadata, and their restore."""
