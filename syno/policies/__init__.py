"""Search policies: which operator to train next.

Each policy is one file. :mod:`syno.searching.proposers` names them for sessions.
"""

#: The policy that needs the fewest trainings on the table of ``benchmarks/opbench``.
DEFAULT_POLICY = "bayesian"
