"""Machine files and this machine's model: what predictions, construction and measurements read."""
