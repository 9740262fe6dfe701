"""The log of a partition: batches in memory and in files, producer state, transactions, and compaction."""
