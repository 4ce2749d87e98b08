"""One corpus of programs, run on two engines in processes of their own, and compared."""
