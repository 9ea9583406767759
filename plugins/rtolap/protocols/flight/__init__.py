"""What the Flight protocols share: servers behind their guard, channels, clients, errors, metrics."""
