"""Parts of ``benchmarks/construct.py``: the paper's operators, the ways to schedule them, changing networks."""
