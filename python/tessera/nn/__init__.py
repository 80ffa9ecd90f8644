"""Layers as plain values. A layer says how its parameters are made (``init(key)`` gives a tree of arrays) and what it does
(``layer(params, x)``); it holds no arrays itself, so that parameters can be differentiated, moved and saved as they are.

    mlp = nn.Sequential(nn.Linear(784, 128), nn.gelu, nn.Linear(128, 10))
    params = mlp.init(ts.random.key(0))
    loss = ts.nn.cross_entropy(mlp(params, x), labels)
"""

import typing as _typing

from . import initializers
from ._functional import (
    attention,
    avg_pool,
    batchnorm,
    binary_cross_entropy,
    conv1d,
    conv2d,
    conv3d,
    cross_entropy,
    elu,
    embedding,
    gelu,
    groupnorm,
    huber_loss,
    instancenorm,
    kl_div,
    l1_loss,
    layernorm,
    leaky_relu,
    log_softmax,
    max_pool,
    mse_loss,
    nll_loss,
    one_hot,
    relu,
    rmsnorm,
    silu,
    smooth_l1_loss,
    softmax,
    softplus,
    swiglu,
    weightnorm,
)
from ._losses import contrastive_loss, ctc_loss, focal_loss, info_nce_loss, triplet_loss
from ..xp import logsumexp, sigmoid, tanh
from ._activations import (
    celu,
    glu,
    hard_sigmoid,
    hard_silu,
    hard_swish,
    hard_tanh,
    log_sigmoid,
    mish,
    relu6,
    selu,
    soft_sign,
    squareplus,
    standardize,
)
from ._layers import (
    MLP,
    Attention,
    Conv2d,
    Dropout,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    RMSNorm,
    Sequential,
    TransformerBlock,
    dropout,
)
from ._batchnorm import BatchNorm
from ._functions import conv_transpose, rope
from ._convs import Conv1d, Conv3d, ConvTranspose
from ._heads import CrossAttention, MultiHeadAttention
from ._module import Module, leaf, static
from ._recurrent import GRU, LSTM

swish = silu

if not _typing.TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        from ..base.foreign_names import missing

        raise missing(__name__, name, list(globals()))
