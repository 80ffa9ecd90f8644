"""Distribution: meshes of devices, arrays that are placed on them, and launches over their parts.

    from tessera import dist

    mesh = dist.mesh(8, ("dp", "tp"), (4, 2))
    W = dist.tensor((8192, 8192), dist.ShardSpec(partition=("col",), mesh_axes=("tp",)), mesh, "bf16")
"""

from ..arrays import create as _create
from ..base.errors import PlacementError
from ._array import DistArray, Part, from_domain, from_local, replicate, reshard, shard, tensor
from ._domain import Rect
from ._draw import Drawing
from ._events import Counts, Event, count
from ._launch import index_launch
from ._mapper import Arch, MappedRegion, Mapper, RecordingMapper, ReplayMapper
from ._mesh import Mesh, current_mesh, mesh
from ._spec import Block, BlockCyclic, Cyclic, Distribution, Replicated, ShardSpec, spec
from ._tasks import wait

__all__ = [
    "Arch", "Block", "BlockCyclic", "Counts", "Cyclic", "DistArray", "Distribution", "Drawing", "Event", "MappedRegion", "Mapper", "Mesh", "Part",
    "PlacementError", "RecordingMapper", "Rect", "ReplayMapper", "Replicated", "ShardSpec", "count", "current_mesh", "from_domain", "from_local",
    "index_launch", "mesh", "reshard", "replicate", "shard", "spec", "tensor", "wait",
]  # fmt: skip

_create.array.from_domain = from_domain  # type: ignore[attr-defined]
