"""Distribution: meshes of devices, arrays that are placed on them, and launches over their parts.

    from tessera import dist

    mesh = dist.mesh(8, ("dp", "tp"), (4, 2))
    W = dist.tensor((8192, 8192), dist.ShardSpec(partition=("col",), mesh_axes=("tp",)), mesh, "bf16")
"""

from ..arrays import create as _create
from ..base.errors import CheckpointError, CommError, PlacementError
from ._array import DistArray, Part, from_domain, from_local, replicate, reshard, shard, tensor
from ._collective import Future, all_gather, all_reduce, all_to_all, allreduce, barrier, broadcast, permute, reduce_scatter
from ._domain import Rect
from ._draw import Drawing
from ._events import Counts, Event, count
from ._launch import index_launch
from ._mapper import Arch, MappedRegion, Mapper, RecordingMapper, ReplayMapper
from ._mesh import Mesh, current_mesh, mesh
from ._processes import init, rank, shutdown, world_size
from ._ranks import axis_index, axis_size
from ._shard_map import shard_map
from ._spec import Block, BlockCyclic, Cyclic, Distribution, Replicated, ShardSpec, spec
from ._tasks import wait
from ._traced import TracedArray, constrain

__all__ = [
    "Arch", "Block", "BlockCyclic", "CheckpointError", "CommError", "Counts", "Cyclic", "DistArray", "Distribution", "Drawing", "Event", "Future", "MappedRegion", "Mapper", "Mesh", "Part",
    "PlacementError", "RecordingMapper", "Rect", "ReplayMapper", "Replicated", "ShardSpec", "TracedArray", "all_gather", "all_reduce", "all_to_all", "allreduce", "axis_index", "axis_size",
    "barrier", "broadcast", "constrain", "count", "current_mesh", "from_domain", "from_local", "index_launch", "init", "mesh", "permute", "reduce_scatter", "reshard",
    "rank", "replicate", "shard", "shard_map", "shutdown", "spec", "tensor", "wait", "world_size",
]  # fmt: skip

_create.array.from_domain = from_domain  # type: ignore[attr-defined]
