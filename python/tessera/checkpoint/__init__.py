"""Checkpoints: trees of arrays in safetensors files.

The attribute `tessera.checkpoint` is the transform (rematerialisation); import from this package by `from tessera.checkpoint.files import ...`.
"""
