"""Serve the DataFrame API of remote clients: what Spark Connect's planner would not send to this engine."""
