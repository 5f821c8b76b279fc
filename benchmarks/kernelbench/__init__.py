"""Parts of `benchmarks/kernels.py`: cases, native calls recognised in them, peers, measuring, plots."""
