"""A drawn program: a tile kernel as source text or a call of the library, and its meaning as an expression.

All of it is text and numbers, so that a row of results holds what is needed to run it again. A program depends on the seed, its
index and the limits alone.
"""

import math
import random
from dataclasses import asdict, dataclass, field

MIB = 2**20
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "fp8_e4m3": 1, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Limits:
    """How large programs may be."""

    #: The longest side of a matmul, and the most operations of one; f32 has no tensor cores and gets an eighth.
    side: int
    flops: float
    #: Bytes that a memory-bound program reads and writes: the least and the most.
    bytes: tuple
    #: Tokens of a sequence, at most; and scores of one batch entry, which the reference keeps in f64.
    tokens: int
    scores: int
    dtypes: tuple = ("bf16", "f16", "f32")
    fp8: bool = True


GPU = Limits(16384, 4e12, (MIB, 512 * MIB), 16384, 2**28)
CPU = Limits(2048, 4e9, (MIB // 16, 32 * MIB), 1024, 2**22, ("f32", "bf16"), fp8=False)
#: For tests: what takes milliseconds on the interpreter's side of things.
TINY = Limits(96, 2e6, (256, 2**14), 80, 2**15, ("f32", "bf16", "f16"), fp8=False)


@dataclass(frozen=True)
class Array:
    shape: tuple
    dtype: str
    #: "normal", "weights" (about 1), or "below N" for integers.
    values: str = "normal"
    #: Whether the last two axes are exchanged in memory.
    turned: bool = False

    @property
    def bytes(self):
        return math.prod(self.shape) * BYTES[self.dtype]

    @property
    def pitch(self):
        """Bytes between the starts of neighbouring rows in memory."""
        if len(self.shape) < 2:
            return 0
        return self.shape[-2 if self.turned else -1] * BYTES[self.dtype]


@dataclass(frozen=True)
class Program:
    seed: int
    index: int
    family: str
    #: What was drawn, in a few words.
    kind: str
    dtype: str
    shape: tuple
    arrays: dict
    out: Array
    #: What runs: an expression of `ts`, the arrays, `out`, and what the source defines.
    call: str
    #: What it means: an expression of the arrays in the names of `meanings.py`.
    meaning: str
    source: str = ""
    #: The candidates of the source's schedule, by name; `source` has `{space}` where they stand.
    space: dict = field(default_factory=dict)
    flops: float = 0.0
    #: Bytes that must be moved where that is not each array once.
    moved: int = 0
    #: Arrays whose leading axis is the result's: a part of the result is checked with a part of them.
    along: tuple = ()
    #: What the result's elements are of the size of, where cancellation makes some of them small.
    size: float = 0.0
    #: What arithmetic may lose beyond rounding, as a part of the result's size.
    loss: float = 0.0
    #: Other expressions for peers, by the framework that has them.
    torch: dict = field(default_factory=dict)
    tensor_cores: bool = False

    @property
    def name(self):
        return f"{self.seed}/{self.index}"

    @property
    def title(self):
        return f"{self.family}: {self.kind}, {self.dtype} {'x'.join(map(str, self.shape))}"

    @property
    def bytes(self):
        return self.moved or sum(a.bytes for a in self.arrays.values()) + self.out.bytes

    def text(self, **pinned):
        """The source with all candidates, or with those that are named."""
        space = {name: [pinned[name]] if name in pinned else values for name, values in self.space.items()}
        return self.source.replace("{space}", ", ".join(f"{name}={values}" for name, values in space.items()))

    def as_dict(self):
        return {**asdict(self), "name": self.name, "title": self.title, "bytes": self.bytes, "source": self.text()}


class Draw(random.Random):
    """Random numbers as programs want them."""

    def length(self, low, high):
        """Log-uniform; of those that reach 8, three in five are multiples of 8."""
        n = round(math.exp(self.uniform(math.log(low), math.log(high))))
        return max(low - low % 8 or 8, n // 8 * 8) if n >= 8 and self.random() < 0.6 else n

    def some(self, values, least=1):
        """A sublist in the same order."""
        count = self.randint(least, len(values))
        kept = set(self.sample(range(len(values)), count))
        return [v for i, v in enumerate(values) if i in kept]

    def matrix(self, bytes_low, bytes_high, itemsize, passes=2):
        """Rows and columns of an array that is read or written `passes` times, of log-uniform bytes and columns."""
        elements = max(1, round(math.exp(self.uniform(math.log(bytes_low), math.log(bytes_high))) / (itemsize * passes)))
        columns = min(elements, self.length(1, min(elements, 2**18)))
        return max(1, elements // columns), columns


def draw(seed, index, limits, family=None):
    """Program `index` of a seed; its family follows from the index unless it is named."""
    from . import families

    family = family or families.at(index)
    return families.DRAWN[family](Draw(f"{seed} {index} {family}"), limits, seed=seed, index=index, family=family)
