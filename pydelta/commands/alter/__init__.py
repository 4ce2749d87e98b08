"""Change a table's definition: columns, properties, constraints, features."""
