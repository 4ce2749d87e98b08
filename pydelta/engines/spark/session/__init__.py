"""Start a session, check it, and choose where a local one stores its data."""
