"""Common parts of the Flight protocols: servers behind their guard, and clients."""
