"""Edits of HBase on their way from the consumer that took them to the one that delivers their rows."""
