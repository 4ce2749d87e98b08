"""Keep a table's record index: which data files hold rows of a key, so that a MERGE by that key opens few files."""
