#!/bin/bash
# Measures on a GPU how much each compiler pass speeds up GEMM, and profiles one GEMM with ncu.
#
#     PYTHONPATH=build/gpu bash bench/gpu/gemm_passes.sh OUT [ROUNDS]
#
# Writes OUT/passes.json (all samples) and OUT/ncu.txt (a profile of bf16 4096x4096x4096). For each pass it prints the speedup:
# the time without the pass over the time with it.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
out=${1:?a folder for results} rounds=${2:-12}
mkdir -p "$out"
off=()
for name in overlapped_epilogue per_warpgroup_store register_reallocation mma_in_flight raster tile_scheduler epilogue \
    "overlapped_epilogue,epilogue" warp_specialization producer_loads async_mma; do
    off+=(--off "$name")
done
timeout 45 python3 -m bench.gpu.gemm --only 'bf16 (4096x4096x4096|8192x8192x8192|8192x8192x1024) NN$' \
    --rounds "$rounds" "${off[@]}" --out "$out/passes.json"
cat > "$out/one.py" <<'PY'
import torch
import tessera as ts
a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
for _ in range(4):
    ts.op.matmul(a, b)
torch.cuda.synchronize()
PY
timeout 40 ncu --kernel-name regex:product --launch-skip 2 --launch-count 1 \
    --section SpeedOfLight --section WarpStateStats --section MemoryWorkloadAnalysis --section ComputeWorkloadAnalysis \
    --section SchedulerStats --section LaunchStats \
    --metrics sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active,sm__inst_executed_pipe_tensor_op_gmma.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_op_read.sum,lts__t_sectors_op_write.sum \
    python3 "$out/one.py" > "$out/ncu.txt" 2>&1
grep -E "Duration|Tensor|tensor|Throughput|dram__|lts__|Issue|Stall|Eligible|Registers" "$out/ncu.txt" | head -40
