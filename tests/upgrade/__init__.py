"""Two versions of the library on one table: the earlier one of tests/stack/upgraded_from, and this one."""
