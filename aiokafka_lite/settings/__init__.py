"""The settings of the clients: their classes, checks, names, properties of Java's clients, and secrets."""
