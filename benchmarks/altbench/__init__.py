"""What `alt.py` measures: layouts of operators, of small graphs, of networks (the ALT paper's experiments)."""
