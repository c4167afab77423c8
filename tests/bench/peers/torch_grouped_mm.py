"""Times torch._grouped_mm and dense products with as many rows: the peer of `hone bench ops grouped`.

    python3 tests/bench/peers/torch_grouped_mm.py [--tokens 16384]

Prints one line per product of the experts of OLMoE-1B-7B and Qwen3-30B-A3B: TFLOP/s of the grouped and the dense
product (bf16, medians), and their ratio. An expert has between half and one and a half times the mean number of rows, as
in hone's bench. The gradient of the weights is bf16 and is written, where hone adds it to f32. Needs PyTorch 2.8 or
newer with CUDA, on compute capability 9.0.
"""

import argparse

import torch

# experts, experts per token, width, width of an expert
MODELS = {"OLMoE": (64, 8, 2048, 1024), "Qwen3-30B-A3B": (128, 8, 2048, 768)}


def median_ms(run, repeats=9):
    run()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[repeats // 2]


def uneven_ends(rows, experts):
    mean, ends, total = rows // experts, [], 0
    for e in range(experts):
        total = min(rows, total + mean + int(mean * (2 * (e * 37 % experts) - experts + 1) / (2 * experts)))
        ends.append(total)
    ends[-1] = rows
    return torch.tensor(ends, device="cuda", dtype=torch.int32)


def measure(name, rows, experts, n, k):
    def normal(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    x, dy, w, ends = normal(rows, k), normal(rows, n), normal(experts, n, k), uneven_ends(rows, experts)
    products = {
        "forward": (lambda: torch._grouped_mm(x, w.transpose(1, 2), offs=ends), lambda: x @ w[0].T),
        "gradient of the input": (lambda: torch._grouped_mm(dy, w, offs=ends), lambda: dy @ w[0]),
        "gradient of the weights": (lambda: torch._grouped_mm(dy.T, x, offs=ends), lambda: dy.T @ x),
    }
    for product, (grouped, dense) in products.items():
        rates = [2e-9 * rows * n * k / median_ms(run) for run in (grouped, dense)]
        print(f"{name:14} {rows} x {n} x {k}  {product:24} {rates[0]:6.0f} of {rates[1]:6.0f} TFLOP/s "
              f"{100 * rates[0] / rates[1]:6.1f}%", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16384)
    tokens = parser.parse_args().tokens
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for name, (experts, choices, width, inner) in MODELS.items():
        measure(name, tokens * choices, experts, 2 * inner, width)
        measure(name, tokens * choices, experts, width, inner)


if __name__ == "__main__":
    main()
