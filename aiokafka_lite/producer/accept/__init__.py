"""Accepts records: checks, partitions, and the append to a batch, one at a time or many."""
