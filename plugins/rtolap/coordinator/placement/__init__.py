"""Where replica sets stand: `racks` (choices that spread over racks), `rules` (what the policy refuses)."""
