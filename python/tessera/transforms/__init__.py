"""Transforms of traced functions: derivatives, batching, custom rules and rematerialisation."""
