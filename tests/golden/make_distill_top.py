"""Writes distill_top.json: forward KL from a teacher's most likely tokens, and its gradients by torch.

python make_distill_top.py > distill_top.json

bucket is the tail bucket of TRL's DistillationTrainer (loss_add_tail), renormalize and ignore are the sums over the
given tokens with and without normalization.
"""

import json

import torch

torch.manual_seed(11)


def case(vocabulary, k, rest, labels, temperature_of_teacher=1.0):
    shape = (2, 3, vocabulary)
    student = (torch.randn(shape, dtype=torch.float64) * 2).round(decimals=3).requires_grad_()
    teacher = (torch.randn(shape, dtype=torch.float64) * 2 / temperature_of_teacher).log_softmax(-1)
    logq, ids = teacher.topk(k, dim=-1)
    logq = logq.float().double()  # the precision of a file
    logp = student.log_softmax(-1).gather(-1, ids)
    q = logq.exp()
    if rest == "renormalize":
        logq = logq - logq.logsumexp(-1, keepdim=True)
        q = logq.exp()
    loss = (q * (logq - logp)).sum(-1)
    if rest == "bucket" and k < vocabulary:
        rest_q = 1 - q.sum(-1)
        others = student.log_softmax(-1).scatter(-1, ids, float("-inf"))
        loss = loss + rest_q * (rest_q.log() - others.logsumexp(-1))
    mask = torch.tensor(labels) != -100
    loss = (loss * mask).sum() / mask.sum()
    loss.backward()
    return {
        "config": {"loss": "top_k", "teacher_rest": rest},
        "input": {
            "student_logits": student.tolist(),
            "teacher_top_ids": ids.tolist(),
            "teacher_top_logp": teacher.topk(k, dim=-1)[0].float().double().tolist(),
            "labels": labels,
        },
        "loss": loss.item(),
        "grad": student.grad.tolist(),
    }


labels = [[-100, 1, 2], [3, -100, 0]]
cases = [
    case(vocabulary, k, rest, labels)
    for vocabulary, k in [(7, 3), (7, 1), (12, 5)]
    for rest in ["bucket", "renormalize", "ignore"]
]
cases += [case(5, 5, "bucket", labels), case(9, 4, "bucket", labels, 0.3)]
print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
