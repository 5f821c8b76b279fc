"""From a model to a faster model: spaces, proposals, the network with operators in it, what came out."""
