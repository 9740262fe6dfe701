"""Chooses the partition of a record: partitioners, their interface, and the choice for a record without a key."""
