"""Provide the programs around the engine: maintenance, ingestion, inventories, status page, certification, doctor."""
