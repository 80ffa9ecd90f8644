#!/bin/bash
# Measures on a GPU how much each compiler pass speeds up attention, and profiles one forward kernel with ncu.
#
#     PYTHONPATH=build/gpu bash bench/gpu/attention_passes.sh OUT [ROUNDS]
#
# Writes OUT/passes.txt and OUT/ncu.txt (a profile of hd128 full 4k). For each pass it prints the speedup: the time without the
# pass over the time with it. "ours (off)" is the kernel without lazy rescaling. An unknown pass name is reported and skipped.
# Some passes depend on others: without async_mma, for example, warps issue synchronous MMAs and most passes do not apply.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
out=${1:?a folder for results} rounds=${2:-8}
mkdir -p "$out"
off=()
for name in fast_math mask_elimination cross_loop_pipelining interleaved_mmas mma_in_flight "interleaved_mmas,mma_in_flight" tile_scheduler \
    raster epilogue overlapped_epilogue producer_loads warp_specialization register_reallocation per_warpgroup_store \
    warpgroup_pingpong async_mma; do
    off+=(--off "$name")
done
timeout 75 python3 -m bench.gpu.attention --only '^(hd128 full 4k|hd128 causal 4k|hd64 full 4k)$' --rounds "$rounds" \
    --lazy-rescale auto,off "${off[@]}" | tee "$out/passes.txt"
timeout 30 python3 -m bench.gpu.attention --only 'std 16|std 4|ramp' --rounds "$rounds" --lazy-rescale auto,off \
    | tee "$out/extreme.txt"
cat > "$out/one.py" <<'PY'
import torch
import tessera as ts
q, k, v = (torch.randn(4, 16, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
for _ in range(4):
    ts.op.flash_attention(q, k, v)
torch.cuda.synchronize()
PY
timeout 40 ncu --kernel-name regex:forward --launch-skip 2 --launch-count 1 \
    --section SpeedOfLight --section WarpStateStats --section ComputeWorkloadAnalysis --section SchedulerStats --section LaunchStats \
    --metrics sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active,sm__inst_executed_pipe_tensor_op_gmma.sum,sm__inst_executed_pipe_xu.sum,dram__bytes_read.sum \
    python3 "$out/one.py" > "$out/ncu.txt" 2>&1
grep -E "Duration|Tensor|tensor|Throughput|dram__|Issue|Stall|Eligible|Registers|pipe" "$out/ncu.txt" | head -40
