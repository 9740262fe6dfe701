"""From a broker's address to answered requests: connectors, connections, and a broker's connections by purpose.

The package transports requests and responses. It does not depend on their meaning, on topics or on groups.
"""
