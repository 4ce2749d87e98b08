"""Describe users, their roles and what each role may read; translate that for Trino. Nothing here needs Spark."""

from __future__ import annotations
