"""What the host does: engine, layout cache, recorder."""
