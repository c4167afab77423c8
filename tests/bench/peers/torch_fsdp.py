"""Trains a decoder of random weights with PyTorch FSDP2 and torch.compile: the peer of `hone bench train --ranks`.

    torchrun --standalone --nproc-per-node 2 tests/bench/peers/torch_fsdp.py --shape qwen2.5-0.5b

Prints one JSON line: tokens/s of all ranks, TFLOP/s of a rank by hone's count (causal attention) and by torchtitan's
(full attention), and the peak memory of a rank. A rank trains --tokens tokens per step in micro-batches of
--micro-batch-tokens, as sequences of --length tokens. bf16 weights are gathered from f32 shards; gradients are reduced
in f32; AdamW is fused. --reshard keeps the weights of a layer whole from the forward to the backward pass (no) or frees
them in between (yes, ZeRO-3). --recompute block repeats each layer's forward pass. Needs PyTorch 2.6 or newer; on a CPU
(--device cpu) it runs with gloo, which 2.6 cannot do yet and 2.15 can.
"""

import argparse
import json
import os
import time

# A fault of NVLink multicast can put all GPUs of a host out of service.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# width, layers, heads, KV heads, MLP width, vocabulary, tied lm_head, bias of q, k and v, base of RoPE
SHAPES = {
    "tiny": (64, 2, 4, 2, 128, 512, True, True, 1e4),
    "qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151936, True, True, 1e6),
    "qwen2.5-1.5b": (1536, 28, 12, 2, 8960, 151936, True, True, 1e6),
    "llama3-8b": (4096, 32, 32, 8, 14336, 128256, False, False, 5e5),
}


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, mlp, bias):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.dim, bias=bias)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * mlp, bias=False)
        self.down = nn.Linear(mlp, width, bias=False)

    def forward(self, x, cos, sin):
        sequences, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(sequences, length, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(sequences, length, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, shape, length):
        super().__init__()
        width, layers, heads, kv_heads, mlp, vocabulary, tied, bias, base = SHAPES[shape]
        self.tied, self.length, self.base, self.head_dim = tied, length, base, width // heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, kv_heads, mlp, bias) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.lm_head = None if tied else nn.Linear(width, vocabulary, bias=False)

    def make_angles(self, device):
        rates = self.base ** (-torch.arange(0, self.head_dim, 2, device=device).float() / self.head_dim)
        angles = torch.outer(torch.arange(self.length, device=device).float(), rates)
        self.cos, self.sin = angles.cos(), angles.sin()

    def initialize(self):
        for module in self.modules():
            if isinstance(module, nn.RMSNorm):
                nn.init.ones_(module.weight)
            elif isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        weight = self.embedding.weight if self.tied else self.lm_head.weight
        return head_loss(self.norm(x).flatten(0, 1), weight, targets.flatten())


def chunk_loss(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")


def head_loss(hidden, weight, targets, rows=4096):
    """The mean loss in chunks of rows. Compiled, a chunk keeps its logits in bf16."""
    total = hidden.new_zeros((), dtype=torch.float32)
    for at in range(0, hidden.shape[0], rows):
        total = total + loss_of_chunk(hidden[at : at + rows], weight, targets[at : at + rows])
    return total / targets.numel()


loss_of_chunk = chunk_loss  # main() compiles it


def count_flops(shape, length):
    """FLOPs per token of a training step: 6 per weight of a product, and attention; the causal half, and all of it."""
    width, layers, heads, kv_heads, mlp, vocabulary, *_ = SHAPES[shape]
    per_layer = width * (heads + 2 * kv_heads) * (width // heads) + width * width + 3 * width * mlp
    products = 6 * (layers * per_layer + width * vocabulary)
    full = 12 * layers * width * length
    return products + full / 2, products + full


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-0.5b")
    parser.add_argument("--tokens", type=int, default=16384, help="tokens of a rank in a step")
    parser.add_argument("--micro-batch-tokens", type=int, default=16384)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=10, help="measured steps; the median is reported")
    parser.add_argument("--warm-up", type=int, default=5, help="steps before, which compile")
    parser.add_argument("--recompute", choices=("none", "block"), default="none")
    parser.add_argument("--reshard", choices=("no", "yes"), default="no")
    parser.add_argument("--compile", choices=("yes", "no"), default="yes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    if args.micro_batch_tokens % args.length or args.tokens % args.micro_batch_tokens:
        parser.error("--length must divide --micro-batch-tokens, and that must divide --tokens")
    return args


def make_model(args, device):
    with torch.device("meta"):
        model = Decoder(args.shape, args.length)
    if args.recompute == "block":  # before compilation and sharding, as torchtitan does
        for i, layer in enumerate(model.layers):
            model.layers[i] = checkpoint_wrapper(layer, preserve_rng_state=False)
    low = torch.bfloat16 if args.device == "cuda" else torch.float32
    options = {
        "reshard_after_forward": args.reshard == "yes",
        "mp_policy": MixedPrecisionPolicy(param_dtype=low, reduce_dtype=torch.float32),
        "mesh": dist.device_mesh.init_device_mesh(args.device, (dist.get_world_size(),)),
    }
    for layer in model.layers:
        if args.compile == "yes":
            layer.compile(dynamic=False)
        fully_shard(layer, **options)
    fully_shard(model, **options)
    model.to_empty(device=device)
    torch.manual_seed(1)
    model.initialize()
    model.make_angles(device)
    return model


def train(args, model, device):
    """The seconds of each measured step, and the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rank, vocabulary = dist.get_rank(), SHAPES[args.shape][5]
    generator = torch.Generator().manual_seed(rank)
    count = args.tokens // args.micro_batch_tokens
    sizes = (count, args.micro_batch_tokens // args.length, args.length + 1)
    tokens = torch.randint(vocabulary, sizes, generator=generator).to(device)
    wait = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)
    times, loss = [], None
    for step in range(args.warm_up + args.steps):
        wait()
        dist.barrier()
        begin = time.perf_counter()
        for i, ids in enumerate(tokens):
            # Gradients stay whole until the last micro-batch only if they fit; FSDP2 reduces each otherwise.
            model.set_requires_gradient_sync(i == count - 1 or args.reshard == "yes")
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
    if args.compile == "yes":
        loss_of_chunk = torch.compile(chunk_loss, dynamic=False)
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if args.device == "cuda" else torch.device("cpu")
    if args.device == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    times, loss = train(args, make_model(args, device), device)
    seconds = torch.tensor(sorted(times)[len(times) // 2], device=device)
    peak = torch.tensor(torch.cuda.max_memory_allocated() if args.device == "cuda" else 0, device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        ranks, rate = dist.get_world_size(), dist.get_world_size() * args.tokens / seconds.item()
        causal, full = count_flops(args.shape, args.length)
        print(json.dumps({
            "program": f"PyTorch {torch.__version__} FSDP2", "bench": "train", "model": args.shape, "ranks": ranks,
            "reshard": args.reshard, "compile": args.compile, "recompute": args.recompute,
            "tokens_per_rank": args.tokens, "length": args.length, "seconds": seconds.item(),
            "tokens_per_second": rate, "loss": loss,
            "model_tflops": rate / ranks * causal * 1e-12, "full_attention_tflops": rate / ranks * full * 1e-12,
            "peak_gb": peak.item() * 1e-9,
        }), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
