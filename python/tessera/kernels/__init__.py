"""Library kernels, written in the tile language itself.

``softmax``, ``norm``, ``cross_entropy``, ``reduce``, ``arg``, ``move`` and ``elementwise`` have the kernels of `tessera.op`, each
with the functions that launch them; ``safe`` those of the safe forms. ``layout`` makes the views that kernels take,
``schedule`` chooses their tiles, ``checks`` refuses what does not fit, and ``arrays`` alone knows whose arrays they are.
"""
