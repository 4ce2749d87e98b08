"""Compare the engine with its peers, one file per question: ratios from one run on the same data."""
