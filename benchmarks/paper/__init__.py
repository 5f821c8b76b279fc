"""The experiments behind `benchmarks/paper_syno.py`, one module each."""
