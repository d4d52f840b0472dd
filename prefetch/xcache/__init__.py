"""A real XCache: its client, its cinfo files, its g-stream."""
