"""Times torch.matmul and a Triton matmul on the layer products that `hone bench ops gemm_forward` times on a GPU.

    python3 tests/bench/gemm_peers.py [rows]

Prints one line per shape: TFLOP/s of torch.matmul (cuBLAS) and of Triton. Run it right before or after hone's bench on
the same machine. Needs PyTorch with CUDA and Triton. The Triton kernel is that of Triton's tutorial 03 without its
autotuner: the better of two configurations is printed.
"""

import sys

import torch
import triton
import triton.language as tl

SHAPES = {
    "0.5b qkv": (1152, 896), "0.5b output": (896, 896), "0.5b gate_up": (9728, 896), "0.5b down": (896, 4864),
    "1.5b qkv": (2048, 1536), "1.5b output": (1536, 1536), "1.5b gate_up": (17920, 1536), "1.5b down": (1536, 8960),
    "8b qkv": (6144, 4096), "8b output": (4096, 4096), "8b gate_up": (28672, 4096), "8b down": (4096, 14336),
}
# block_m, block_n, block_k, warps, stages
CONFIGS = [(128, 256, 64, 8, 3), (128, 128, 64, 4, 4)]


@triton.jit
def matmul_kernel(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    sweep = pid // (GROUP * tiles_n)
    height = min(tiles_m - sweep * GROUP, GROUP)
    m = sweep * GROUP + pid % (GROUP * tiles_n) % height
    n = pid % (GROUP * tiles_n) // height
    rows = (m * BM + tl.arange(0, BM)) % M
    columns = (n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    x_at = x + rows[:, None] * K + k[None, :]
    w_at = w + columns[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        a = tl.load(x_at, mask=k[None, :] < K - i * BK, other=0.0)
        b = tl.load(w_at, mask=k[:, None] < K - i * BK, other=0.0)
        total = tl.dot(a, b, total)
        x_at += BK
        w_at += BK
    rows = m * BM + tl.arange(0, BM)
    columns = n * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16), mask=inside)


def triton_matmul(x, w, y, config):
    (M, K), N = x.shape, w.shape[0]
    bm, bn, bk, warps, stages = config
    grid = (triton.cdiv(M, bm) * triton.cdiv(N, bn),)
    matmul_kernel[grid](x, w, y, M, N, K, bm, bn, bk, 8, num_warps=warps, num_stages=stages)


def main():
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 16384
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"TFLOP/s at {rows} rows")
    print(f"{'shape':14} {'torch':>6} {'triton':>6}")
    for name, (n, k) in SHAPES.items():
        x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(rows, n, device="cuda", dtype=torch.bfloat16)
        expected = x @ w.T
        best = 0.0
        flops = 2.0 * rows * n * k
        timed = lambda run: flops / triton.testing.do_bench(run, warmup=10, rep=60, return_mode="median") / 1e9
        for config in CONFIGS:
            triton_matmul(x, w, y, config)
            torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2 * k**0.5)
            best = max(best, timed(lambda: triton_matmul(x, w, y, config)))
        print(f"{name:14} {timed(lambda: torch.matmul(x, w.T, out=y)):6.0f} {best:6.0f}", flush=True)


if __name__ == "__main__":
    main()
