"""Add the commands of the tools to the command line. Their implementations are imported when they are called."""
