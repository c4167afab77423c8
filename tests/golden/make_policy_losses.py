"""Writes policy_losses.json: losses, gradients, masks and advantages of TRL 1.16 and verl 0.9.1.

python make_policy_losses.py PATH/site-packages > policy_losses.json

Reads the functions from the packages' files, so that only PyTorch and NumPy must be installed. A case with the fields of
"input" beside its own "input" is a file for `hone objective grpo`, with what the other framework computes for it.
Log-probs are multiples of 2^-12: exact in float32.
"""

import ast
import json
import math
import sys
import textwrap
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, Optional

import torch

site = sys.argv[1]


def functions(path, names, scope):
    """Executes the functions and methods of these names in `scope`, without decorators and annotations."""
    for node in ast.walk(ast.parse(open(f"{site}/{path}").read())):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
            node.returns = None
            for argument in node.args.args + node.args.kwonlyargs:
                argument.annotation = None
            exec(compile(ast.unparse(node), path, "exec"), scope)


scope = {"torch": torch, "math": math, "Optional": Optional, "Any": Any}
functions("trl/trainer/utils.py", {"nanstd", "nanmin", "nanmax"}, scope)
functions("trl/trainer/grpo_trainer.py", {"_compute_loss", "get_off_policy_mask", "get_high_entropy_mask"}, scope)
verl = {"torch": torch, "math": math, "SAFETY_BOUND": 20.0}
functions("verl/utils/torch_functional.py", {"masked_sum", "masked_mean"}, verl)
verl["verl_F"] = SimpleNamespace(masked_sum=verl["masked_sum"], masked_mean=verl["masked_mean"])
verl["ActorConfig"] = SimpleNamespace
verl["AlgoConfig"] = int
functions(
    "verl/trainer/ppo/core_algos.py",
    {"agg_loss", "compute_policy_loss_sapo", "compute_policy_loss_dppo_tv", "compute_policy_loss_dppo_kl"},
    verl,
)
helper = "verl/trainer/ppo/rollout_corr_helper.py"
for node in ast.parse(open(f"{site}/{helper}").read()).body:
    if isinstance(node, (ast.AnnAssign, ast.Assign)) and "ROLLOUT_RS_OPTIONS" in ast.unparse(node):
        exec(compile(ast.unparse(node), helper, "exec"), verl)
functions(
    helper, {"compute_rollout_rejection_mask", "_parse_rollout_rs_thresholds", "compute_rs_metrics"}, verl
)

torch.manual_seed(11)
S, T = 6, 9


def exact(tensor):
    return (tensor * 4096).round() / 4096


def uniform(low, high):
    return exact(low + (high - low) * torch.rand(S, T, dtype=torch.float64))


logp = uniform(-4, -0.02)
old_logp = torch.minimum(logp + uniform(-0.7, 0.7), torch.tensor(-0.01, dtype=torch.float64))
old_logp = exact(old_logp)
behavior_logp = exact(torch.minimum(old_logp + uniform(-0.5, 0.5), torch.tensor(-0.01, dtype=torch.float64)))
behavior_logp[1] = exact(behavior_logp[1] + 1.0)  # far from the learner, with a negative advantage
behavior_logp[3] = exact(old_logp[3] + uniform(-0.02, 0.02)[3])
reference_logp = exact(logp + uniform(-0.5, 0.5))
entropy = uniform(0.05, 3)
mask = (torch.rand(S, T) < 0.8).double()  # holes are observations of an environment
mask[:, 0] = 0
mask[:, 1] = 1
mask[2, 5:] = 0
advantages = torch.tensor([1.25, -0.75, 0.5, -1.5, 0.0, 2.0], dtype=torch.float64)


shared_input = {
    "logp": logp.tolist(),
    "old_logp": old_logp.tolist(),
    "behavior_logp": behavior_logp.tolist(),
    "reference_logp": reference_logp.tolist(),
    "entropy": entropy.tolist(),
    "mask": mask.tolist(),
}


def rounded(tensor):
    return [[float(f"{value:.9g}") for value in row] for row in tensor.tolist()]


def given(config):
    return {"advantages": advantages.tolist(), "config": config}


class Identity:
    num_processes, sync_gradients = 1, True

    def gather(self, tensor):
        return tensor

    def pad_across_processes(self, tensor, **_):
        return tensor

    def reduce(self, tensor, **_):
        return tensor


def trl_case(name, **config):
    """GRPOTrainer._compute_loss, with the sampler's log-probs and no importance correction."""
    policy = logp.clone().requires_grad_()
    level = config.get("importance_sampling_level", "token")
    args = SimpleNamespace(
        delta=config.get("delta") or None,
        sapo_temperature_pos=config.get("sapo_temperature_pos", 1.0),
        sapo_temperature_neg=config.get("sapo_temperature_neg", 1.05),
        use_bias_correction_kl=False,
        steps_per_generation=1,
    )
    epsilon = config.get("epsilon", 0.2)
    me = SimpleNamespace(
        args=args,
        accelerator=Identity(),
        model=SimpleNamespace(training=True),
        _get_per_token_logps_and_entropies=lambda *_, **__: (policy, entropy, None),
        aux_loss_enabled=False,
        top_entropy_quantile=config.get("top_entropy_quantile", 1.0),
        off_policy_mask_threshold=config.get("off_policy_mask_threshold"),
        importance_sampling_level=level,
        beta=config.get("beta", 0.0),
        loss_type=config.get("loss_type", "dapo"),
        epsilon_low=epsilon,
        epsilon_high=config.get("epsilon_high", epsilon),
        max_completion_length=config.get("max_completion_length", 0),
        use_vllm=False,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        get_off_policy_mask=scope["get_off_policy_mask"],
    )
    me.get_high_entropy_mask = lambda *a: scope["get_high_entropy_mask"](me, *a)
    inputs = {
        "prompt_ids": torch.zeros(S, 1),
        "prompt_mask": torch.ones(S, 1),
        "completion_ids": torch.zeros(S, T),
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": old_logp,
        "sampling_per_token_logps": behavior_logp,
        "ref_per_token_logps": reference_logp,
        "num_items_in_batch": mask.sum(),
    }
    loss = scope["_compute_loss"](me, None, inputs)
    loss.backward()
    return {
        "name": name,
        "source": "TRL 1.16 GRPOTrainer._compute_loss",
        "input": given(config | {"importance_sampling_mode": "none"}),
        "loss": loss.item(),
        "grad": rounded(policy.grad),
    }


def verl_case(name, function, agg, config, given_mask=mask, **actor):
    policy = logp.clone().requires_grad_()
    values = {"clip_ratio": config.get("epsilon", 0.2), "clip_ratio_low": None, "clip_ratio_high": None}
    values |= {"global_batch_info": {}, "tau_pos": 1.0, "tau_neg": 1.05} | actor

    class Config(SimpleNamespace):
        def get(self, key, default):
            return getattr(self, key, default)

    loss, metrics = verl[function](
        old_logp, policy, advantages.unsqueeze(1).expand(S, T), given_mask, agg, Config(**values)
    )
    loss.backward()
    return {
        "name": name,
        "source": f"verl 0.9.1 {function}, {agg}",
        "input": given(config | {"importance_sampling_mode": "none"}),
        "loss": loss.item(),
        "grad": rounded(policy.grad),
        "metrics": {key: value for key, value in metrics.items() if config["loss_type"] != "sapo" or "kl" in key},
    }


def rejection_case(name, options, threshold, **config):
    kept, metrics = verl["compute_rollout_rejection_mask"](old_logp - behavior_logp, mask, options, threshold)
    config |= {"loss_type": "sapo", "rollout_rs": options, "rollout_rs_threshold": threshold}
    case = verl_case(
        name,
        "compute_policy_loss_sapo",
        "seq-mean-token-mean",
        config,
        kept,
        # hone's sequences without a kept token count in the mean, as verl's do in its global batch size
        global_batch_info={"global_batch_size": S},
    )
    names = ["mean", "min", "max", "masked_fraction", "seq_masked_fraction"]
    wanted = [f"rollout_rs_{option}_{name}" for option in options.split(",") for name in names]
    wanted += ["rollout_rs_masked_fraction", "rollout_rs_seq_masked_fraction"]
    case["metrics"] = {f"rollout_corr/{key}": metrics[key] for key in wanted}
    case["source"] = "verl 0.9.1 compute_rollout_rejection_mask, " + case["source"]
    return case


def gdpo_case(name, rewards, weights, group_size):
    """The branch normalize_then_sum of GRPOTrainer._generate_and_score_completions."""
    source = open(f"{site}/trl/trainer/grpo_trainer.py").read()
    begin = source.index('        elif self.multi_objective_aggregation == "normalize_then_sum":\n')
    end = source.index("        else:\n", begin)
    block = textwrap.dedent(source[source.index("\n", begin) + 1 : end])
    rows = torch.tensor([[math.nan if r is None else r for r in row] for row in rewards], dtype=torch.float64)
    names = scope | {
        "rewards_per_func": rows,
        "num_generations": group_size,
        "device": "cpu",
        "unscorable_mask": torch.isnan(rows).all(dim=1),
        "self": SimpleNamespace(
            reward_funcs=range(rows.shape[1]), reward_weights=torch.tensor(weights, dtype=torch.float64)
        ),
    }
    exec(block, names)
    out = torch.nan_to_num(names["advantages"], nan=0.0)
    config = {"multi_objective_aggregation": "normalize_then_sum"}
    own = {"rewards": rewards, "reward_weights": weights, "group_size": group_size, "config": config}
    return {
        "name": name,
        "source": "TRL 1.16 GRPOTrainer, normalize_then_sum",
        "input": own,
        "advantages": out.tolist(),
    }


cases = [
    trl_case("sapo", loss_type="sapo"),
    trl_case("sapo_temperatures_kl", loss_type="sapo", sapo_temperature_pos=2.0, sapo_temperature_neg=4.0, beta=0.1),
    trl_case("sapo_sequence", loss_type="sapo", importance_sampling_level="sequence"),
    trl_case("opsm", loss_type="grpo", off_policy_mask_threshold=0.3),
    trl_case("opsm_dapo_kl", off_policy_mask_threshold=0.02, beta=0.05),
    trl_case("opsm_sapo", loss_type="sapo", off_policy_mask_threshold=0.3),
    *(
        trl_case(f"top_entropy_{quantile}", loss_type=loss_type, beta=0.05, top_entropy_quantile=quantile, **more)
        for quantile, loss_type, more in [
            (0.2, "dapo", {}),
            (0.5, "grpo", {}),
            (0.8, "dr_grpo", {"max_completion_length": 16}),
            (0.0, "bnpo", {}),
            (0.3, "cispo", {"epsilon_high": 1.5}),
        ]
    ),
    trl_case("top_entropy_opsm_sapo", loss_type="sapo", top_entropy_quantile=0.4, off_policy_mask_threshold=0.3),
    verl_case("sapo_verl", "compute_policy_loss_sapo", "seq-mean-token-mean", {"loss_type": "sapo"}),
    *(
        verl_case(
            f"{kind}_{agg}",
            f"compute_policy_loss_{kind}",
            agg,
            {"loss_type": kind, "epsilon": low, "epsilon_high": high, "delta": bound, "loss_agg_mode": agg}
            | {"max_completion_length": T},
            clip_ratio_low=low,
            clip_ratio_high=high,
            clip_ratio_c=bound,
        )
        for kind, low, high in [("dppo_tv", 0.05, 0.1), ("dppo_kl", 0.01, 0.05)]
        for agg, bound in [
            ("token-mean", 1.5),
            ("seq-mean-token-mean", 3.0),
            ("seq-mean-token-sum", 20.0),
            ("seq-mean-token-sum-norm", 3.0),
        ]
    ),
    rejection_case("geometric", "seq_mean_k1", "0.9_1.15"),
    rejection_case("geometric_one_number", "seq_mean_k1", "1.3"),
    rejection_case("tokens", "token_k1", "0.8_1.4"),
    rejection_case("tokens_k2", "token_k2", "0.05"),
    rejection_case("product", "seq_sum_k1", "0.2_3"),
    rejection_case("chained", "token_k3,seq_mean_k3,seq_max_k2", "0.1,0.05,0.2"),
    gdpo_case("gdpo", [[1.0, 0.5], [0.0, 0.25], [1.0, 1.0], [0.0, 0.0], [0.0, 0.75], [1.0, 0.5]], [1.0, 0.5], 3),
    gdpo_case("gdpo_skipped", [[1.0, None], [0.0, 2.0], [0.5, 4.0], [None, 1.0], [3.0, 1.0], [3.0, 1.0]], [1, 2], 3),
]
json.dump({"input": shared_input, "cases": cases}, sys.stdout)
