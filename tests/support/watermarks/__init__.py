"""Applications, hosts and watermarks: worlds, models, recorded reports."""
