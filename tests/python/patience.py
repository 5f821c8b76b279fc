"""How long tests wait for other processes."""

#: Seconds after which a process that should end hangs. No answer takes this long, however busy the machine is.
PATIENCE_S = 1200
