"""The group coordinator: groups of the classic and the consumer protocol, their offsets, and their log."""
