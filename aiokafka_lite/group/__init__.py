"""Consumer groups: membership decided by a pure machine, driven by one task; assignment by strategies."""
