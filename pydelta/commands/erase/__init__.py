"""Delete the rows of given keys from a table for good, and search what is left for them."""
