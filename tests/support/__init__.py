"""Kept runs of the tests by versions of Python and Spark and by stores, and the page that is drawn of them."""
