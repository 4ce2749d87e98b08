"""Run ``pydelta sql``: statements in, results drawn."""
