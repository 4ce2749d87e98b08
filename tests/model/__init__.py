"""Explore a small model of a table completely: every order of its steps, every crash, every lost reply."""
