"""Find tables by name, and keep their entries in the session's catalog."""
