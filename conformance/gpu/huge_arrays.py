"""Arrays whose sizes or strides exceed 32 bits."""

import tessera as ts

from gpurun.compare import Mismatch
from gpurun.device import Skip


@ts.kernel
def double_line(x: ts.Tensor["n"], y: ts.Tensor["n"]):
    i = ts.tile.program_id(0) * 4096
    y[i:i + 4096] = x[i:i + 4096] * 2.0


@ts.kernel
def double_rows(x: ts.Tensor["M", "N"], y: ts.Tensor["M", "N"]):
    m = ts.tile.program_id(0) * 2
    n = ts.tile.program_id(1) * 64
    y[m:m + 2, n:n + 64] = x[m:m + 2, n:n + 64] * 2.0


@ts.kernel
def double_lanes(x: ts.Tensor["M", "N"], y: ts.Tensor["M", "N"]):
    i = ts.tile.linear_id()
    if i < M * N:
        y[i // N, i % N] = x[i // N, i % N] * 2.0


def huge_line(device):
    """More elements than 2**32."""
    torch, n = device.torch, 2**32 + 12345
    if torch.cuda.mem_get_info()[0] < 4 * n:
        raise Skip("too little memory")
    x = torch.empty(n, dtype=torch.float8_e5m2, device=device.device)
    x.view(torch.uint8).fill_(0x3C)  # 1.0
    y = device.empty((n,), "fp8_e5m2")
    places = [0, 4095, 2**31 - 1, 2**31, 2**32 - 1, 2**32, n - 1]
    x.view(torch.uint8)[places] = 0x44  # 4.0
    double_line(x, y)
    device.synchronize()
    bits = y.view(torch.uint8)
    if bits[places].tolist() != [0x48] * len(places):
        raise Mismatch(f"at {places} the bits are {bits[places].tolist()}, expected {0x48}")
    if (count := int((bits == 0x40).sum())) != n - len(places):
        raise Mismatch(f"{n - len(places) - count} of {n} elements are wrong")
    return {"cases": 1}


def huge_strides(device):
    """Rows more than 2**32 bytes apart."""
    torch, step = device.torch, 2**31 + 24
    if torch.cuda.mem_get_info()[0] < 16 * step:
        raise Skip("too little memory")
    for kernel in (double_rows, double_lanes):
        memory = [torch.empty(3 * step, dtype=torch.bfloat16, device=device.device) for _ in range(2)]
        x, y = (m.as_strided((3, 100), (step, 1), 7) for m in memory)
        x.copy_(torch.randn(3, 100, device=device.device))
        y.fill_(float("nan"))
        kernel(x, y)
        device.synchronize()
        if not torch.equal(y, x * 2):
            raise Mismatch(f"{kernel.name}: {int((y != x * 2).sum())} of 300 elements are wrong")
        del x, y, memory
    torch.cuda.empty_cache()
    return {"cases": 2}
