"""Cases and measurement of the derivation benchmark."""
