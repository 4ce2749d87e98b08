"""Add the commands of the tools to the command line; what they do is imported when they are called."""
