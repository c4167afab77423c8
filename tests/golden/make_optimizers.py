"""Writes optimizers.json: parameters after each of a few steps by the published optimizers, in f64.

  pip install torch==2.15.0 transformers==5.23.0
  python make_optimizers.py

torch.optim has Muon (with the Newton-Schulz iteration in f64 instead of bf16), AdamW, Adagrad, SGD and RMSprop;
transformers has Adafactor; Lion is google/automl/lion/lion_pytorch.py, copied below.
"""
import inspect
import json
import math
import pathlib
import random

import torch
import torch.optim._muon as muon_module
from transformers.optimization import Adafactor

source = inspect.getsource(muon_module._zeropower_via_newtonschulz).replace("torch.bfloat16", "torch.float64")
exec(source, muon_module.__dict__)


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                beta1, beta2 = group["betas"]
                update = state["exp_avg"] * beta1 + p.grad * (1 - beta1)
                p.add_(update.sign_(), alpha=-group["lr"])
                state["exp_avg"].mul_(beta2).add_(p.grad, alpha=1 - beta2)


SHAPES = {"wide": [4, 6], "tall": [6, 4], "vector": [5]}
STEPS = 6
LR = 0.01
draw = random.Random(5)
# Numbers with 16 bits after the point are exact in f32.
number = lambda scale: round(draw.gauss(0, 1) * scale * 65536) / 65536
tensor = lambda shape, scale: [number(scale) for _ in range(math.prod(shape))]
start = {name: tensor(shape, 1) for name, shape in SHAPES.items()}
grads = [{name: tensor(shape, 0.5 * (step + 1)) for name, shape in SHAPES.items()} for step in range(STEPS)]

matrices = lambda p: [p["wide"], p["tall"]]
everything = lambda p: list(p.values())


def muon(adjust, nesterov, steps):
    return lambda p: [
        torch.optim.Muon(matrices(p), lr=LR, weight_decay=0.1, momentum=0.9, nesterov=nesterov, ns_steps=steps,
                         adjust_lr_fn=adjust),
        torch.optim.AdamW([p["vector"]], lr=0.5 * LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)]


def decayed(make):
    """Weight decay for the matrices only, as in hone."""
    return lambda p: [make(matrices(p), 0.1), make([p["vector"]], 0)]


def adafactor(**settings):
    return decayed(lambda params, decay: Adafactor(params, weight_decay=decay, **settings))


CASES = [
    ("muon", 'momentum = 0.9\nweight_decay = 0.1\nadjust_lr_fn = "original"\nadam_learning_rate_factor = 0.5',
     muon("original", True, 5)),
    ("muon", "momentum = 0.9\nweight_decay = 0.1\nnesterov = false\nns_steps = 3\nadam_learning_rate_factor = 0.5",
     muon("match_rms_adamw", False, 3)),
    ("adamw", "weight_decay = 0.1", decayed(
        lambda params, decay: torch.optim.AdamW(params, lr=LR, weight_decay=decay))),
    ("adagrad", "weight_decay = 0.1\nlr_decay = 0.1\ninitial_accumulator_value = 0.25", decayed(
        lambda params, decay: torch.optim.Adagrad(params, lr=LR, lr_decay=0.1, weight_decay=decay,
                                                  initial_accumulator_value=0.25))),
    ("lion", "weight_decay = 0.1", decayed(
        lambda params, decay: Lion(params, lr=LR, betas=(0.9, 0.99), weight_decay=decay))),
    ("adafactor", "weight_decay = 0.1", adafactor(lr=LR, scale_parameter=False, relative_step=False)),
    ("adafactor", "weight_decay = 0.1\nrelative_step = true\nscale_parameter = true", adafactor()),
    ("adafactor", "weight_decay = 0.1\nscale_parameter = true\nbeta1 = 0.9\nclip_threshold = 0.5\ndecay_rate = -0.5",
     adafactor(lr=LR, relative_step=False, beta1=0.9, clip_threshold=0.5, decay_rate=-0.5)),
    ("adafactor", "weight_decay = 0.1\nrelative_step = true\nwarmup_init = true",
     adafactor(warmup_init=True, scale_parameter=False)),
    ("sgd", "weight_decay = 0.1\nmomentum = 0.9\nnesterov = true", decayed(
        lambda params, decay: torch.optim.SGD(params, lr=LR, momentum=0.9, nesterov=True, weight_decay=decay))),
    ("rmsprop", "weight_decay = 0.1\nalpha = 0.9", decayed(
        lambda params, decay: torch.optim.RMSprop(params, lr=LR, alpha=0.9, weight_decay=decay))),
]


def trace(make):
    params = {name: torch.tensor(start[name], dtype=torch.float64).view(shape).requires_grad_()
              for name, shape in SHAPES.items()}
    optimizers = make(params)
    out = []
    for step in range(STEPS):
        for name, p in params.items():
            p.grad = torch.tensor(grads[step][name], dtype=torch.float64).view(SHAPES[name])
        for optimizer in optimizers:
            optimizer.step()
        out.append({name: [float(f"{x:.9g}") for x in p.detach().flatten().tolist()] for name, p in params.items()})
    return out


cases = [{"optimizer": kind, "settings": settings, "trace": trace(make)} for kind, settings, make in CASES]
path = pathlib.Path(__file__).with_name("optimizers.json")
path.write_text(json.dumps({"learning_rate": LR, "shapes": SHAPES, "start": start, "grads": grads, "cases": cases},
                           indent=None, separators=(",", ":")) + "\n")
