"""Writes a Qwen2 model folder with random bf16 weights and a tokenizer of bytes: for runs of configs/memory/ on machines
without the weights. Standard library only.

    python3 tests/gpu/make_random_model.py 7b runs/random-7b
    hone run configs/memory/qwen2.5_7b_lora_24gb.toml model.path=runs/random-7b model.chat_template=qwen
"""
import json
import os
import random
import struct
import sys

# width, MLP, layers, heads, KV heads, vocabulary, tied embeddings
SHAPES = {
    "0.5b": (896, 4864, 24, 14, 2, 151936, True),
    "7b": (3584, 18944, 28, 28, 4, 152064, False),
    "tiny": (64, 128, 2, 4, 2, 512, False),
}


def tensors(width, mlp, layers, heads, kv_heads, vocabulary, tied):
    """Yields (name, shape, standard deviation; 0 for ones, None for zeros)."""
    keys = kv_heads * (width // heads)
    yield "model.embed_tokens.weight", [vocabulary, width], 0.02
    for i in range(layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", [width], 0
        yield at + "post_attention_layernorm.weight", [width], 0
        for name, rows, columns in (("q", width, width), ("k", keys, width), ("v", keys, width)):
            yield f"{at}self_attn.{name}_proj.weight", [rows, columns], 0.02
            yield f"{at}self_attn.{name}_proj.bias", [rows], None
        yield at + "self_attn.o_proj.weight", [width, width], 0.02
        yield at + "mlp.gate_proj.weight", [mlp, width], 0.02
        yield at + "mlp.up_proj.weight", [mlp, width], 0.02
        yield at + "mlp.down_proj.weight", [width, mlp], 0.02
    yield "model.norm.weight", [width], 0
    if not tied:
        yield "lm_head.weight", [vocabulary, width], 0.02


def bf16(value):
    return struct.pack("<f", value)[2:]


def write_weights(path, shape):
    header, at, parts = {}, 0, []
    for name, dims, deviation in tensors(*shape):
        size = 2
        for dim in dims:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [at, at + size]}
        parts.append((size, deviation))
        at += size
    draw = random.Random(1)
    # One block of random numbers, repeated. Its length has no common factor with a row's.
    block = b"".join(bf16(draw.gauss(0, 0.02)) for _ in range(1048573))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for size, deviation in parts:
            if deviation is None:
                out.write(bytes(size))
            elif deviation == 0:
                out.write(bf16(1.0) * (size // 2))
            else:
                while size > 0:
                    out.write(block[:size])
                    size -= len(block)


def byte_names():
    """The characters that stand for bytes in tokenizer.json (GPT-2's)."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    names, more = {byte: chr(byte) for byte in plain}, 0
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(256 + more)
            more += 1
    return names


def write_tokenizer(folder):
    special = [{"id": 256 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, text in enumerate(("<|im_start|>", "<|im_end|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"type": "BPE", "vocab": {name: byte for byte, name in byte_names().items()}, "merges": []}
    whole = {"version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": level,
             "post_processor": None, "decoder": level, "model": model}
    with open(os.path.join(folder, "tokenizer.json"), "w") as out:
        json.dump(whole, out)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
        json.dump({"eos_token": "<|im_end|>"}, out)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: make_random_model.py {'|'.join(SHAPES)} FOLDER")
    shape, folder = SHAPES[sys.argv[1]], sys.argv[2]
    width, mlp, layers, heads, kv_heads, vocabulary, tied = shape
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": width,
                   "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads,
                   "num_key_value_heads": kv_heads, "vocab_size": vocabulary, "max_position_embeddings": 32768,
                   "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                   "tie_word_embeddings": tied}, out)
    write_tokenizer(folder)
    write_weights(os.path.join(folder, "model.safetensors"), shape)


if __name__ == "__main__":
    main()
