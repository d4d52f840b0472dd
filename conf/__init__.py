"""The shipped settings: data and comments, no logic."""
