"""Schedules for this machine: its model, predicted times, search by measurement, and the records kept."""
