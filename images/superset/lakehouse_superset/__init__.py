"""What the stack adds to Apache Superset: its users, its sources and its dashboards."""
