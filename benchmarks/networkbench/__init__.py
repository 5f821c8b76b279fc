"""Whole networks, compiled, against other compilers of them: what `networks.py` runs."""
