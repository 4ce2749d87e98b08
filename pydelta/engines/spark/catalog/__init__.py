"""Find tables by name, and maintain their entries in the session's catalog."""
