"""Operators as values: what a user writes as a formula or a search finds, their files, their explanation in words."""
