"""Writes distill_softcap.json: divergences of soft-capped logits (Gemma 2) and their gradients by torch.

python make_distill_softcap.py > distill_softcap.json

The divergence is TRL's generalized_jsd_loss; with top_ids it is the forward KL with the tail bucket.
"""

import json

import torch

torch.manual_seed(5)
R, V, D, DT, K = 3, 9, 4, 5, 3


def drawn(*shape):
    return (torch.randn(shape, dtype=torch.float64) * 1.5).round(decimals=3)


def cap(logits, softcap):
    return softcap * torch.tanh(logits / softcap) if softcap > 0 else logits


def kl(log_a, log_b):
    return (log_a.exp() * (log_a - log_b)).sum(-1)


def case(softcap, teacher_softcap, beta, temperature, top=False):
    hidden, w = drawn(R, D).requires_grad_(), drawn(V, D).requires_grad_()
    teacher_hidden, teacher_w, weight = drawn(R, DT), drawn(V, DT), drawn(1, R)
    log_p = (cap(hidden @ w.T, softcap) / temperature).log_softmax(-1)
    log_q = (cap(teacher_hidden @ teacher_w.T, teacher_softcap) / temperature).log_softmax(-1)
    out = {"softcap": softcap, "teacher_softcap": teacher_softcap, "beta": beta, "temperature": temperature}
    if top:
        log_k, ids = log_q.topk(K, dim=-1)
        log_k = log_k.float().double()  # the precision of a file
        q, others = log_k.exp(), log_p.scatter(-1, ids, float("-inf"))
        rest = 1 - q.sum(-1)
        divergence = (q * (log_k - log_p.gather(-1, ids))).sum(-1) + rest * (rest.log() - others.logsumexp(-1))
        out |= {"top_ids": ids.tolist(), "top_logp": log_k.tolist()}
    else:
        if beta == 0:
            divergence = kl(log_q, log_p)
        elif beta == 1:
            divergence = kl(log_p, log_q)
        else:
            log_m = ((1 - beta) * log_p.exp() + beta * log_q.exp()).log()
            divergence = beta * kl(log_q, log_m) + (1 - beta) * kl(log_p, log_m)
        out |= {"teacher_hidden": teacher_hidden.tolist(), "teacher_w": teacher_w.tolist()}
    (weight[0] * divergence).sum().backward()
    out |= {"hidden": hidden.tolist(), "w": w.tolist(), "weight": weight.tolist(), "divergence": [divergence.tolist()]}
    return out | {"dhidden": hidden.grad.tolist(), "dw": w.grad.tolist()}


cases = [
    case(3.0, 2.0, 0.0, 1.0),
    case(3.0, 0.0, 1.0, 2.0),
    case(0.0, 2.0, 0.5, 1.0),
    case(1.5, 4.0, 0.3, 0.8),
    case(2.0, 0.0, 0.0, 1.0, top=True),
]
print("[" + ",\n".join(json.dumps(one) for one in cases) + "]")
