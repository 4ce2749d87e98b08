"""Choose the tests of ``make test``: each branch of the code that any test runs, at the least cost of the processor."""
