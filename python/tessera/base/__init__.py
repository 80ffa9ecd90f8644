"""Errors, dtypes, annotations and source text: what every other package rests on."""
