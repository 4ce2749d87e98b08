"""The public interface of the project, one entry per line, and which of its changes a changelog has to name."""
