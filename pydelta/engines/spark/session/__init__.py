"""Start a session, check it, and keep what a local one needs on disk."""
