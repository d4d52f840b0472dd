"""The whole loop on one machine: `make demo`."""
