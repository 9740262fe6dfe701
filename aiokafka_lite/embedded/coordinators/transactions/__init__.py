"""The transaction coordinator: states, log, markers, and the verification of partitions."""
