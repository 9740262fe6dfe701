"""The embedded schema registry: its HTTP server, subjects, references, and compatibility."""
