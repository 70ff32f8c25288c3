"""Names -> weights, processor and chat layout; how prompts and frames become a model's inputs."""
