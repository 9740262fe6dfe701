"""The interfaces of other clients, on top of this client."""
