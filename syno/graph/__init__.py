"""Whole networks: graphs of tensor programs, imported, fused, compiled and run as one."""
