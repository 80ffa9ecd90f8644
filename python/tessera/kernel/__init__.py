"""Kernel objects: decorators, signatures, captured names, schedules, calls.

The attribute `tessera.kernel` is the decorator; import from this package by `from tessera.kernel.func import ...`.
"""
