"""The command line: one module per group of commands, and all that knows the terminal."""
