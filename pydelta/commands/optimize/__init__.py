"""Write files anew in better sizes or order: OPTIMIZE, REORG."""
