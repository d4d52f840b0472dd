"""A whole site on one machine: its services, and the demonstration."""
