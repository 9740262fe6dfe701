"""The replicas on a broker: appends, fetches, replication, the in-sync replicas, and purgatory."""
