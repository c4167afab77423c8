"""Adapters as PEFT writes them on the tiny models of make_families.py, and what the models then compute (needs torch, transformers and peft).

python3 make_lora.py FOLDER                writes FOLDER/lora_NAME: PEFT's two files and results.safetensors (logits, gradients, a merged weight)
python3 make_lora.py --open ADAPTER [IDS]  opens an adapter folder of hone's in PEFT and prints the log-probs of the ids (comma-separated)

The base model of an adapter is the folder `base` inside of it; the tests write it.
"""
import json, pathlib, sys, torch, transformers, peft
from safetensors.torch import save_file
from make_families import CONFIGS, weight

ADAPTERS = {
    'llama': dict(r=4, lora_alpha=6, use_rslora=True, target_modules='all-linear'),
    'qwen3': dict(r=2, lora_alpha=8, target_modules=r'.*layers\.1\..*(q|down)_proj'),
    'gpt2': dict(r=3, lora_alpha=8, target_modules=['c_attn', 'c_proj', 'c_fc'], fan_in_fan_out=True),
}


def main(folder):
    ids = torch.tensor([[(7 * t * t + 11 * s + 3 * t) % 48 for t in range(14)] for s in range(2)])
    for name, keys in ADAPTERS.items():
        config = transformers.AutoConfig.for_model(**CONFIGS[name], bos_token_id=None, eos_token_id=None)
        base = transformers.AutoModelForCausalLM.from_config(config, attn_implementation='eager').float().eval()
        with torch.no_grad():
            for key, p in base.named_parameters(): p.copy_(weight(key, p.shape))
        model = peft.get_peft_model(base, peft.LoraConfig(task_type='CAUSAL_LM', **keys)).eval()
        with torch.no_grad():
            for key, p in model.named_parameters():
                if 'lora_' in key: p.copy_(weight(key.replace('.default', ''), p.shape))
        model.peft_config['default'].base_model_name_or_path = 'base'
        model.save_pretrained(folder / f'lora_{name}')
        (folder / f'lora_{name}' / 'README.md').unlink(missing_ok=True)
        logits = model(ids, use_cache=False).logits
        torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 48), ids[:, 1:].reshape(-1)).backward()
        out = {'input_ids': ids.int(), 'logits': logits.detach()}
        for key, p in model.named_parameters():
            if p.grad is not None: out['grad.' + key.replace('.default', '')] = p.grad.clone()
        for key, p in model.merge_and_unload().named_parameters():
            if key.endswith(('layers.1.self_attn.q_proj.weight', 'h.1.attn.c_attn.weight')): out['merged.' + key] = p.detach().clone()
        save_file({k: v.contiguous() for k, v in out.items()}, str(folder / f'lora_{name}' / 'results.safetensors'),
                  metadata={'config': json.dumps(CONFIGS[name])})
        print(name, sorted(model.peft_config['default'].target_modules) if not isinstance(keys['target_modules'], str) else keys['target_modules'])


def open_adapter(folder, ids):
    config = peft.PeftConfig.from_pretrained(folder)
    base = transformers.AutoModelForCausalLM.from_pretrained(config.base_model_name_or_path, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, folder).eval()
    tokens = torch.tensor([[int(i) for i in ids.split(',')]])
    logp = torch.log_softmax(model(tokens).logits[0, :-1], -1)
    print(json.dumps([round(logp[t, tokens[0, t + 1]].item(), 5) for t in range(tokens.shape[1] - 1)]))


if __name__ == '__main__':
    open_adapter(sys.argv[2], sys.argv[3]) if sys.argv[1] == '--open' else main(pathlib.Path(sys.argv[1]))
