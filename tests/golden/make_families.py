"""Writes logits and gradients of tiny models as transformers computes them: python3 make_families.py FOLDER [FAMILY...] (needs torch and transformers).

A weight is a function of its name and place, here and in tests/core/model/golden.h, so that the files hold results alone. The loss is the mean negative
log-likelihood of every token but a sequence's first.
"""
import json, pathlib, sys, torch, transformers
from safetensors.torch import save_file

M = 2**32
LLAMA = dict(vocab_size=48, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=8,
             max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=100.0, tie_word_embeddings=False, hidden_act='silu')
GEMMA = {k: v for k, v in LLAMA.items() if k not in ('hidden_act', 'tie_word_embeddings')}
GEMMA |= dict(hidden_activation='gelu_pytorch_tanh', tie_word_embeddings=True, query_pre_attn_scalar=12, sliding_window=5)
DEEPSEEK = {k: v for k, v in LLAMA.items() if k not in ('head_dim', 'rope_theta')}
DEEPSEEK |= dict(model_type='deepseek_v3', num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
                 kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=16, n_routed_experts=8,
                 num_experts_per_tok=3, moe_intermediate_size=10, first_k_dense_replace=1, num_nextn_predict_layers=0)
CONFIGS = {
    'llama': dict(LLAMA, model_type='llama'),
    'qwen2': dict(LLAMA, model_type='qwen2', tie_word_embeddings=True, use_sliding_window=False),
    'qwen3': dict(LLAMA, model_type='qwen3', tie_word_embeddings=True, use_sliding_window=False),
    'mistral': dict(LLAMA, model_type='mistral', sliding_window=5),
    'olmo2': dict(LLAMA, model_type='olmo2'),
    'smollm3': dict(LLAMA, model_type='smollm3', tie_word_embeddings=True, num_hidden_layers=3, no_rope_layers=[1, 0, 1], use_sliding_window=True,
                    sliding_window=5),
    'phi3': dict(LLAMA, model_type='phi3', sliding_window=6, original_max_position_embeddings=32, partial_rotary_factor=0.5,
                 rope_scaling=dict(type='longrope', short_factor=[1.1, 1.7], long_factor=[2.0, 4.0])),
    # Both texts are longer than the original context: transformers takes long_factor for all positions.
    'phi3_long': dict(LLAMA, model_type='phi3', original_max_position_embeddings=8,
                      rope_scaling=dict(type='longrope', short_factor=[1.1, 1.7, 2.0, 2.5], long_factor=[2.0, 4.0, 5.5, 7.0])),
    'gemma2': dict(GEMMA, model_type='gemma2', attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    'gemma3_text': dict(GEMMA, model_type='gemma3_text', num_hidden_layers=3, sliding_window_pattern=2, rope_local_base_freq=50.0,
                        rope_scaling=dict(rope_type='linear', factor=2.0)),
    'gemma3_text_scaled': dict({k: v for k, v in GEMMA.items() if k != 'rope_theta'}, model_type='gemma3_text', num_hidden_layers=3, sliding_window_pattern=2,
                               rope_parameters=dict(full_attention=dict(rope_type='llama3', rope_theta=100.0, factor=4.0, low_freq_factor=1.0,
                                                                        high_freq_factor=4.0, original_max_position_embeddings=16),
                                                    sliding_attention=dict(rope_type='linear', rope_theta=50.0, factor=3.0))),
    'qwen3_moe': dict(LLAMA, model_type='qwen3_moe', num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=10,
                      norm_topk_prob=True, mlp_only_layers=[1], router_aux_loss_coef=0.5),
    'qwen2_moe': dict(LLAMA, model_type='qwen2_moe', num_experts=5, num_experts_per_tok=2, moe_intermediate_size=10, shared_expert_intermediate_size=14,
                      router_aux_loss_coef=0.5),
    'qwen2_moe_gelu': dict(LLAMA, model_type='qwen2_moe', hidden_act='gelu', num_experts=4, num_experts_per_tok=4, moe_intermediate_size=10,
                           shared_expert_intermediate_size=14, norm_topk_prob=True, decoder_sparse_step=2, qkv_bias=False,
                           router_aux_loss_coef=0.5),
    'olmoe': dict(LLAMA, model_type='olmoe', intermediate_size=12, num_experts=8, num_experts_per_tok=3, router_aux_loss_coef=0.5),
    'olmoe_clipped': dict(LLAMA, model_type='olmoe', intermediate_size=12, num_experts=8, num_experts_per_tok=3, clip_qkv=0.8,
                          router_aux_loss_coef=0.5),
    'mixtral': dict(LLAMA, model_type='mixtral', intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.5,
                    sliding_window=None),
    'deepseek_v3': dict(DEEPSEEK, q_lora_rank=20, n_group=4, topk_group=2, n_shared_experts=2, routed_scaling_factor=1.7,
                        rope_parameters=dict(rope_type='yarn', rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, mscale=0.8,
                                             mscale_all_dim=0.9, beta_fast=4, beta_slow=1)),
    'deepseek_v3_plain': dict(DEEPSEEK, q_lora_rank=None, n_group=1, topk_group=1, n_shared_experts=1, routed_scaling_factor=1.0, norm_topk_prob=False,
                              rope_interleave=False, first_k_dense_replace=0, attention_bias=True, v_head_dim=10),
    'gpt_oss': dict({k: v for k, v in LLAMA.items() if k not in ('hidden_act', 'rope_theta')}, model_type='gpt_oss', num_hidden_layers=3,
                    intermediate_size=10, head_dim=16, num_local_experts=5, num_experts_per_tok=3, sliding_window=5, router_aux_loss_coef=0.5,
                    swiglu_limit=0.6, swiglu_alpha=1.702,
                    rope_parameters=dict(rope_type='yarn', rope_theta=100.0, factor=8.0, beta_fast=4.0, beta_slow=1.0, truncate=False,
                                         original_max_position_embeddings=16)),
    'deepseek_v2': dict({k: v for k, v in DEEPSEEK.items() if k != 'num_nextn_predict_layers'}, model_type='deepseek_v2', q_lora_rank=None,
                        topk_method='group_limited_greedy', n_group=4, topk_group=2, n_shared_experts=1, routed_scaling_factor=1.5, norm_topk_prob=False,
                        rope_parameters=dict(rope_type='yarn', rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, mscale=0.7,
                                             mscale_all_dim=0.7)),
    'gpt2': dict(model_type='gpt2', vocab_size=48, n_embd=24, n_inner=40, n_layer=2, n_head=3, n_positions=64, layer_norm_epsilon=1e-5,
                 activation_function='gelu_new', tie_word_embeddings=True, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    'hone_decoder_helium': dict(LLAMA, model_type='helium'),
    'hone_decoder_stablelm': dict({k: v for k, v in LLAMA.items() if k != 'rms_norm_eps'}, model_type='stablelm', layer_norm_eps=1e-5,
                                  partial_rotary_factor=0.5, use_qkv_bias=False),
}
# The configs that hone reads: the same models as compositions of hone_decoder, or with a member of hone's own.
HONE = {
    'phi3_long': dict(CONFIGS['phi3_long'], use_long_rope=True),
    'hone_decoder_helium': dict(LLAMA, model_type='hone_decoder', rope_interleaved=True),
    'hone_decoder_stablelm': dict(LLAMA, model_type='hone_decoder', norm_type='layer_norm', partial_rotary_factor=0.5),
}


def fnv(name):
    h = 2166136261
    for c in name.encode(): h = (h ^ c) * 16777619 % M
    return h


def weight(name, shape):
    n = 1
    for d in shape: n *= d
    x = (torch.arange(n, dtype=torch.int64) + fnv(name)) % M * 2654435761 % M
    x = (x ^ (x >> 15)) * 2246822519 % M
    x = x ^ (x >> 13)
    u = ((x >> 8).double() / 2**24 - 0.5).reshape(shape)
    if len(shape) > 1: return (0.6 * u).float()
    return (1 + 0.4 * u if name.endswith('.weight') else 0.4 * u).float()


def parts(model, key, p):
    """The tensors of the file that a parameter stands for, as (name, view): experts are apart in the file."""
    if '.mlp.experts.' not in key: return [(key.replace('.mlp.gate.', '.block_sparse_moe.gate.') if model == 'mixtral' else key, p)]
    if model == 'gpt_oss': return oss_parts(key, p)
    mixtral = model == 'mixtral'
    prefix = key.rsplit('.', 1)[0].replace('.mlp.', '.block_sparse_moe.') if mixtral else key.rsplit('.', 1)[0]
    out = []
    for e in range(p.shape[0]):
        if key.endswith('down_proj'): out.append((f'{prefix}.{e}.{"w2" if mixtral else "down_proj"}.weight', p[e]))
        else:
            gate, up = p[e].chunk(2)
            out += [(f'{prefix}.{e}.{"w1" if mixtral else "gate_proj"}.weight', gate), (f'{prefix}.{e}.{"w3" if mixtral else "up_proj"}.weight', up)]
    return out


def oss_parts(key, p):
    """Experts of gpt-oss: transposed, gate and up columns in turn."""
    prefix, end = key.rsplit('.', 1)[0], 'bias' if key.endswith('_bias') else 'weight'
    out = []
    for e in range(p.shape[0]):
        one = p[e] if end == 'bias' else p[e].T
        if '.down_proj' in key: out.append((f'{prefix}.{e}.down_proj.{end}', one))
        else: out += [(f'{prefix}.{e}.gate_proj.{end}', one[::2]), (f'{prefix}.{e}.up_proj.{end}', one[1::2])]
    return out


def worst(actual, expected): return ((actual - expected).abs().max() / expected.abs().max()).item()


def tokens(name):
    """olmoe's choose all experts, and no choice is near a tie: bf16 does not change it."""
    if name.startswith('olmoe'): return torch.tensor([[fnv(f'4 {s} {t}') % 48 for t in range(5)] for s in range(2)])
    return torch.tensor([[(7 * t * t + 11 * s + 3 * t) % 48 for t in range(14)] for s in range(2)])


def main(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or CONFIGS:
        keys, ids = CONFIGS[name], tokens(name)
        config = transformers.AutoConfig.for_model(**keys, bos_token_id=None, eos_token_id=None, pad_token_id=None)
        config._experts_implementation = 'eager'
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation='eager').float().eval()
        with torch.no_grad():
            for key, p in model.named_parameters():
                for part, view in parts(name, key, p): view.copy_(weight(part, view.shape))
            for key, buffer in model.named_buffers():
                if key.endswith('e_score_correction_bias'): buffer.copy_(weight(key, buffer.shape))
        def run():
            """Logits, the auxiliary loss of the routers, and the gradient of the loss."""
            result = model(ids, use_cache=False, **({'output_router_logits': True} if 'router_aux_loss_coef' in keys else {}))
            aux = result.aux_loss if 'router_aux_loss_coef' in keys else torch.zeros(())
            logits = result.logits.float()
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 48), ids[:, 1:].reshape(-1))
            (loss + keys.get('router_aux_loss_coef', 0) * aux).backward()
            return logits, loss, aux
        logits, loss, aux = run()
        out = {'input_ids': ids.int(), 'logits': logits.detach(), 'loss': loss.detach().reshape(1)}
        if 'router_aux_loss_coef' in keys: out['aux_loss'] = aux.detach().reshape(1)
        for key, p in model.named_parameters():
            for part, grad in parts(name, key, p.grad): out['grad.' + part] = grad.clone()
        # How far plain bf16 is from that, by the measure of the tests.
        model.zero_grad()
        model.bfloat16()
        logits = run()[0]
        rounded = {'logits': worst(logits.detach(), out['logits']),
                   'gradients': max(worst(grad.float(), out['grad.' + part]) for key, p in model.named_parameters()
                                    for part, grad in parts(name, key, p.grad))}
        save_file({k: v.contiguous() for k, v in out.items()}, str(folder / f'{name}.safetensors'),
                  metadata={'config': json.dumps(HONE.get(name, keys) | ({'router_aux_loss_scope': 'micro_batch'} if 'router_aux_loss_coef' in keys else {})), 'bf16_errors': json.dumps(rounded)})
        print(rounded, name, loss.item(), sum(p.numel() for p in model.parameters()))


if __name__ == '__main__': main(pathlib.Path(sys.argv[1]), sys.argv[2:])
