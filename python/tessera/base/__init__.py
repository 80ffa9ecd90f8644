"""Errors, dtypes, annotations and source text: the base of every other package."""
