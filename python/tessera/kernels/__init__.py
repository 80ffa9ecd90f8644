"""Library kernels, written in the tile language itself.

``gemm``, ``attention``, ``softmax``, ``norm``, ``cross_entropy``, ``reduce``, ``arg``, ``move`` and ``elementwise`` hold the kernels
of `tessera.op`, most with the functions that launch them; ``safe`` those of the safe forms. Their options, and functions of the
caller with the arrays that those read (``functions``), are records. What comes before a launch has modules of its own where it is
long: ``gemm_plan`` and ``matmul``, ``attention_plan`` and ``flash_attention``, ``norm_rows``. ``layout`` makes the views that kernels
take, ``schedule`` chooses their tiles, ``checks`` refuses arguments that do not fit. Only ``arrays`` depends on the array library:
NumPy, PyTorch or CuPy.
"""
