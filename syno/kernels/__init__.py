"""Operators as machine code: compiled, checked, kept, for fixed sizes and for ranges of them."""
