#!/bin/bash
# What each pass of the compiler gives to attention, and where the time of one goes, on a machine with a GPU.
#
#     PYTHONPATH=build/gpu bash bench/gpu/attention_passes.sh OUT [ROUNDS]
#
# OUT gets passes.txt and ncu.txt (a profile of hd128 full 4k); what is printed says how many times as fast kernels are with
# each pass as without it ("ours (off)": with the running maximum as the reference of the softmax). A name that no pass has is
# reported and left out; without some passes the others do not apply, and MMAs of single warps show.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
out=${1:?a folder for results} rounds=${2:-8}
mkdir -p "$out"
off=()
for name in relax whole chain pair rotate "pair,rotate" tiles raster epilogue defer feeds roles pools apart alternate encode; do
    off+=(--off "$name")
done
timeout 75 python3 -m bench.gpu.attention --only '^(hd128 full 4k|hd128 causal 4k|hd64 full 4k)$' --rounds "$rounds" \
    --free auto,off "${off[@]}" | tee "$out/passes.txt"
timeout 30 python3 -m bench.gpu.attention --only 'std 16|std 4|ramp' --rounds "$rounds" --free auto,off \
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
