"""Writes figures that lm-evaluation-harness 0.4.4 gives for stories260K on a few tasks, and what its filters read in real solutions of GSM8K:

    python3 make_lm_eval.py DATA > lm_eval.json     (needs lm_eval 0.4.4, transformers, torch on the CPU; DATA is the shared data's folder)

The tasks are those of configs/tasks, spelt as lm-evaluation-harness spells them. lm_eval_test.cpp holds hone to the figures.
"""
import contextlib, gzip, json, pathlib, sys
import lm_eval, transformers
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from lm_eval.models.huggingface import HFLM

data = pathlib.Path(sys.argv[1])
folder = data / 'weights' / 'stories260K'
model = HFLM(pretrained=transformers.AutoModelForCausalLM.from_pretrained(folder),
             tokenizer=transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / 'tokenizer.json'), bos_token='<s>', eos_token='</s>'),
             add_bos_token=True, max_length=512, batch_size=1, device='cpu')


# A name of its own: a registered task's name would bring that task's settings along.
def task(name, file, output_type, metrics, shots=0, examples=None, **more):
    files = {'test': str(data / file), **({'train': str(data / examples)} if examples else {})}
    fewshot = dict(training_split='train', fewshot_split='train', fewshot_config={'sampler': 'first_n'}) if examples else {}
    return dict(task='hone_' + name, dataset_path='json', dataset_kwargs={'data_files': files}, test_split='test', output_type=output_type,
                metric_list=[{'metric': m} for m in metrics], num_fewshot=shots, **fewshot, **more)


CHOICES = dict(doc_to_target='gold', doc_to_choice='choices')
MMLU = dict(doc_to_text='{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:',
            doc_to_choice=['A', 'B', 'C', 'D'], doc_to_target='answer')
TASKS = [
    (task('arc_easy', 'eval/arc_easy.jsonl', 'multiple_choice', ['acc', 'acc_norm'], doc_to_text='{{query}}\nAnswer:', **CHOICES), 100),
    (task('arc_challenge', 'eval/arc_challenge.jsonl', 'multiple_choice', ['acc', 'acc_norm'], shots=2, examples='eval/arc_easy.jsonl',
          doc_to_text='{{query}}\nAnswer:', **CHOICES), 20),
    (task('hellaswag', 'eval/hellaswag_val_subset.jsonl', 'multiple_choice', ['acc', 'acc_norm'], doc_to_text='{{query}}', **CHOICES), 25),
    (task('mmlu', 'eval/mmlu_test_570.jsonl', 'multiple_choice', ['acc', 'acc_norm'], **MMLU), 25),
    (task('winogrande', 'eval/winogrande.jsonl', 'multiple_choice', ['acc'], doc_to_text=lambda doc: doc['gold'],
          doc_to_target=lambda doc: doc['continuation'], doc_to_choice=lambda doc: doc['context_options']), 50),
    (task('lambada', 'eval/lambada_openai.jsonl.gz', 'loglikelihood', ['perplexity', 'acc'], doc_to_text='{{context}}', doc_to_target=' {{continuation}}',
          target_delimiter=''), 50),
    (task('perplexity', 'pretrain/c4_demo.jsonl', 'loglikelihood_rolling', ['word_perplexity', 'byte_perplexity', 'bits_per_byte'], doc_to_text='',
          doc_to_target='{{text}}'), 4),
]

lm_eval.evaluator.prepare_print_tasks = lambda tasks, results: (results, {})   # its table wants names of registered tasks
out = {'tasks': {}}
for config, limit in TASKS:
    name = config['task']   # before simple_evaluate takes it out
    model.add_bos_token = config['output_type'] != 'loglikelihood_rolling'   # which puts one before the document itself
    with contextlib.redirect_stdout(sys.stderr):   # it says there that it draws resamples
        done = lm_eval.simple_evaluate(model=model, tasks=[config], limit=limit, bootstrap_iters=1000)
    figures = {k: v for k, v in done['results'][name].items() if isinstance(v, float)}
    samples = sorted(done['samples'][name], key=lambda s: s['doc_id'])
    likelihoods = [[r[0] if isinstance(r, (tuple, list)) else r for r in s['filtered_resps']] for s in samples]
    out['tasks'][name.removeprefix('hone_')] = {'limit': limit, 'figures': figures, 'logp': likelihoods}

FILTERS = {'strict-match': RegexFilter(regex_pattern=r'#### (\-?[0-9\.\,]+)'),
           'flexible-extract': RegexFilter(regex_pattern=r'(-?[$0-9.,]{2,})|(-?[0-9]+)', group_select=-1)}
IGNORE = [',', r'\$', r'(?s).*#### ', r'\.$']
out['gsm8k'] = []
tests = [json.loads(line) for line in open(data / 'eval/gsm8k_test.jsonl')]
for index, line in enumerate(gzip.open(data / 'pref/gsm8k_test_model_solutions.jsonl.gz', 'rt')):
    if index % 5:
        continue
    for place, solution in enumerate(json.loads(line)['solutions']):
        text = solution['solution'].replace('\nA: ', '\n#### ' if place % 2 else '\nA: ')   # the answers are marked "A: "
        entry = {'row': index, 'solution': place}
        for name, regex in FILTERS.items():
            answer = regex.apply([[text]], [{}])[0][0]
            match = exact_match_hf_evaluate([answer], [tests[index]['answer']], regexes_to_ignore=IGNORE, ignore_case=True)['exact_match']
            entry[name] = [answer, int(match)]
        out['gsm8k'].append(entry)
json.dump(out, sys.stdout, separators=(',', ':'))
