#!/usr/bin/env python3
"""Speed of PyTorch's scaled_dot_product_attention with the flash backend (FlashAttention 2), causal, in bf16.

The peer of `hone bench ops --filter attention --device cuda`: run it right before or after hone's bench on the same
machine. Prints TFLOP/s of the forward and the backward pass for each shape: median of 15 runs after 2 warm-ups,
4 T^2 d H / 2 operations forward and 2.5 times as many backward.
"""
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = [(4, 4096, 32, 64), (4, 4096, 16, 128)]  # sequences, tokens, heads, head dimension


def median_seconds(run, repeats=15):
    times = []
    for _ in range(2 + repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times[2:])


def measure(sequences, tokens, heads, dim):
    q, k, v = (
        torch.randn(sequences, tokens, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
        for _ in range(3)
    )
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    grad = torch.randn_like(out)

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def backward():
        torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    flops = 4 * tokens * tokens * dim * heads / 2 * sequences
    return flops / median_seconds(forward) * 1e-12, 2.5 * flops / median_seconds(backward) * 1e-12


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for shape in SHAPES:
            forward, backward = measure(*shape)
            print(f"{shape[0]} x {shape[1]}, {shape[2]} heads of {shape[3]}: "
                  f"forward {forward:.0f} TFLOP/s, backward {backward:.0f} TFLOP/s")


if __name__ == "__main__":
    main()
