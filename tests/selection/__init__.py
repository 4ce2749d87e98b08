"""Choose the cases of ``make test``: one of each test, and all that run a branch of the code which no other runs."""
