"""From a broker's address to answered requests: connectors, connections, and a broker's connections by purpose.

Nothing here knows topics, groups or what a request means; only how it gets there and how its answer comes back.
"""
