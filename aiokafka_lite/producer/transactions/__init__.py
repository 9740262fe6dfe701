"""The transactions of a producer: their states, their coordinator, and producer ids."""
