"""The command line: a module per group of commands; each command reads its options and calls one job."""
