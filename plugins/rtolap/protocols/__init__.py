"""One module per protocol: its messages and its client. Services meet only through these."""
