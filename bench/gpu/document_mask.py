"""Attention within documents packed into one sequence: our block mask, and compiled FlexAttention as the peer."""

import functools

import numpy as np
import torch

import tessera as ts

from gpurun import inputs
from ledger.kernels import same_document


@functools.lru_cache(maxsize=None)
def places(length, count):
    """The document of each token, as in the ledger."""
    drawn = inputs.values(np.arange(length, dtype=np.int64), 1, "documents", f"documents {count} {length}")
    return torch.from_numpy(drawn.astype(np.int32)).cuda()


def pairs(documents):
    """The number of (query, key) pairs that the mask keeps."""
    return int((torch.bincount(documents.long()) ** 2).sum())


def ours(q, k, v, documents, lazy_rescale):
    """Attention over the blocks that the mask keeps. The block mask is computed once."""
    blocks = ts.op.block_mask(ts.bind(same_document, documents=documents), q, k, v)
    return lambda: ts.op.flash_attention(q, k, v, mask_mod=blocks, lazy_rescale=lazy_rescale)


def flex(q, k, v, documents):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def mask(b, h, i, j):
        return documents[i] == documents[j]

    blocks = create_block_mask(mask, None, None, q.shape[2], k.shape[2], device="cuda")
    call = torch.compile(flex_attention, dynamic=False)
    return lambda: call(q, k, v, block_mask=blocks, enable_gqa=q.shape[1] != k.shape[1])
