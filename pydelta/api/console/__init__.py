"""Talk to a person at a terminal: arguments, addresses, tables, progress, and what standard output cannot take."""
