"""The coordinators of a broker: groups of every protocol, share groups, streams groups, and transactions."""
