"""lakewake.toml: the file, its sections, and what a person chose in them."""
