"""One training: task, loss and metrics, checkpoints, first values of replaced layers."""
