"""Feed tables from streams of records: decode them, set bad ones aside, and apply each batch once."""
