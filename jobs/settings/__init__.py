"""The settings: one tree of frozen models, read once from conf/*.toml, conf/local/ and the environment."""
