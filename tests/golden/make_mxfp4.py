"""Writes MXFP4 tensors and what transformers makes of them: python3 make_mxfp4.py FILE (needs torch and transformers).

`every`: all 256 scales with all bytes. `gate_up_proj` and `down_proj`: the experts of a layer with hidden and inner size 32, with scales near 1.
"""
import sys, torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


def main(path):
    torch.manual_seed(1)
    out = {}
    every = torch.arange(256 * 16, dtype=torch.int64).mul(37).add(11).remainder(256).to(torch.uint8).reshape(1, 256, 1, 16)
    packed = {'every': (every, torch.arange(256, dtype=torch.uint8).reshape(1, 256, 1))}
    for name, rows in (('gate_up_proj', 64), ('down_proj', 32)):
        packed[name] = (torch.randint(0, 256, (3, rows, 1, 16), dtype=torch.uint8), torch.randint(118, 126, (3, rows, 1), dtype=torch.uint8))
    for name, (blocks, scales) in packed.items():
        out[name + '_blocks'], out[name + '_scales'] = blocks, scales
        out[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).contiguous()
    save_file(out, path)


if __name__ == '__main__': main(sys.argv[1])
