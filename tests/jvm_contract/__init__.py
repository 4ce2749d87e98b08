"""The register of what the engine touches in the JVM, and the check that a version of Spark has it."""
