"""Parts of benchmarks/reuse.py."""
