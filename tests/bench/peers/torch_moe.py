"""Trains a mixture of experts of random weights with PyTorch, torch.compile and torch._grouped_mm: the peer of
`hone bench train --shape olmoe-1b-7b`.

    python3 tests/bench/peers/torch_moe.py --shape olmoe-1b-7b --tokens 16384

Prints one JSON line: tokens/s of the median step, its loss and the peak memory. A step trains --tokens tokens in
micro-batches of --micro-batch-tokens, as sequences of --length tokens. Weights, gradients and the moments of the fused
AdamW are bf16, and there is no balancing loss: less memory and work than hone's f32 gradients and master weights.
--recompute block repeats each layer's forward pass. Needs PyTorch 2.9 or newer.
"""

import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

# width, layers, heads, experts, experts per token, width of an expert, vocabulary, base of RoPE
SHAPES = {
    "tiny": (64, 2, 4, 8, 2, 32, 512, 1e4),
    "olmoe-1b-7b": (2048, 16, 16, 64, 8, 1024, 50304, 1e4),
}


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Experts(nn.Module):
    def __init__(self, width, experts, choices, inner):
        super().__init__()
        self.experts, self.choices = experts, choices
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x):
        tokens, width = x.shape
        weights, chosen = self.router(x).float().softmax(-1).topk(self.choices, -1)
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        places = order.argsort()
        counts = torch.zeros(self.experts, dtype=torch.int32, device=x.device)
        ends = counts.scatter_add(0, chosen, torch.ones_like(chosen, dtype=torch.int32)).cumsum(0).to(torch.int32)
        rows = x[order // self.choices]
        gate, up = torch._grouped_mm(rows, self.gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        results = torch._grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        return (results[places].view(tokens, self.choices, width) * weights.unsqueeze(-1)).sum(1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width, heads, experts, choices, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2, self.norm_q, self.norm_k = (nn.RMSNorm(width, eps=1e-5) for _ in range(4))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = Experts(width, experts, choices, inner)

    def forward(self, x, cos, sin):
        sequences, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (y.view(sequences, length, self.heads, -1).transpose(1, 2) for y in (self.norm_q(q), self.norm_k(k), v))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(sequences, length, width))
        return x + self.mlp(self.norm2(x).flatten(0, 1)).view(x.shape)


class Decoder(nn.Module):
    def __init__(self, shape, recompute):
        super().__init__()
        width, layers, heads, experts, choices, inner, vocabulary, self.base = SHAPES[shape]
        self.recompute, self.head_dim = recompute, width // heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, experts, choices, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def initialize(self):
        for name, weight in self.named_parameters():
            if "norm" in name:
                nn.init.ones_(weight)
            else:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids, targets):
        rates = self.base ** (-torch.arange(0, self.head_dim, 2, device=ids.device).float() / self.head_dim)
        angles = torch.outer(torch.arange(ids.shape[1], device=ids.device).float(), rates)
        cos, sin = angles.cos(), angles.sin()
        x = self.embedding(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.recompute else layer(x, cos, sin)
        hidden, targets = self.norm(x).flatten(0, 1), targets.flatten()
        total = hidden.new_zeros((), dtype=torch.float32)
        for at in range(0, hidden.shape[0], 4096):
            total = total + loss_of_chunk(hidden[at : at + 4096], self.lm_head.weight, targets[at : at + 4096])
        return total / targets.numel()


def chunk_loss(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")


loss_of_chunk = chunk_loss  # main() compiles it


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="olmoe-1b-7b")
    parser.add_argument("--tokens", type=int, default=16384, help="tokens of a step")
    parser.add_argument("--micro-batch-tokens", type=int, default=16384)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=10, help="measured steps; the median is reported")
    parser.add_argument("--warm-up", type=int, default=4, help="steps before, which compile")
    parser.add_argument("--recompute", choices=("none", "block"), default="none")
    parser.add_argument("--compile", choices=("yes", "no"), default="yes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    if args.micro_batch_tokens % args.length or args.tokens % args.micro_batch_tokens:
        parser.error("--length must divide --micro-batch-tokens, and that must divide --tokens")
    return args


def train(args, model):
    """The seconds of each measured step, and the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    count = args.tokens // args.micro_batch_tokens
    sizes = (count, args.micro_batch_tokens // args.length, args.length + 1)
    tokens = torch.randint(SHAPES[args.shape][6], sizes, generator=torch.Generator().manual_seed(1)).to(args.device)
    wait = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)
    times, loss = [], None
    for step in range(args.warm_up + args.steps):
        wait()
        begin = time.perf_counter()
        for ids in tokens:
            loss = model(ids[:, :-1], ids[:, 1:]) / count
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        wait()
        if step >= args.warm_up:
            times.append(time.perf_counter() - begin)
    return times, loss.item() * count


def main():
    global loss_of_chunk
    args = parse()
    torch.manual_seed(1)
    with torch.device("meta"):
        model = Decoder(args.shape, args.recompute == "block").to(torch.bfloat16)
    model.to_empty(device=args.device)
    model.initialize()
    if args.compile == "yes":
        loss_of_chunk = torch.compile(chunk_loss, dynamic=False)
        for layer in model.layers:
            layer.compile(dynamic=False)
    times, loss = train(args, model)
    seconds = sorted(times)[len(times) // 2]
    peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
    print(json.dumps({
        "program": f"PyTorch {torch.__version__}", "bench": "train", "model": args.shape, "compile": args.compile,
        "recompute": args.recompute, "length": args.length, "tokens": args.tokens, "seconds": seconds,
        "tokens_per_second": args.tokens / seconds, "loss": loss, "peak_gb": peak * 1e-9,
    }))


if __name__ == "__main__":
    main()
