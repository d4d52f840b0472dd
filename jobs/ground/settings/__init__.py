"""The settings: one tree of frozen models, read once from TOML files and the environment."""
