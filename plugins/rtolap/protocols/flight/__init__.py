"""Common parts of the Flight protocols: servers behind their guard, channels, clients, errors, metrics."""
