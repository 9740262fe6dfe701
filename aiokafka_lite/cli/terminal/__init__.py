"""What the commands share: options, the connection, output, and the run of a command with its signals and errors."""
