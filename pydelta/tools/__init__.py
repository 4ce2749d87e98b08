"""Collect the programs around the engine: maintenance, ingestion, inventories, the page, certification, the doctor."""
