"""Kernel objects: decorators, signatures, captured names, schedules, calls and their replay.

The attribute `tessera.kernel` is the decorator; import from this package by `from tessera.kernel.replay import ...`.
"""
