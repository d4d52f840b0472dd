"""Every policy on every trace at every capacity, side by side."""
