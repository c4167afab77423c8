#!/usr/bin/env bash
# Runs a fixed set of small recipes and writes the sha256 sums of all that a refactoring must not change: weights,
# optimizer state, metrics without times, samples, evaluations, the server's answers. Sums belong to one machine.
#   bits.sh HONE OUT [--against OTHER] [NAME...]
# HONE is the program; it may be that of an older tree. OUT gets sums.txt (lines `sha256  NAME/what`) and kept/, the
# text and files that were summed. With --against (a folder like OUT, or its sums.txt) lists what differs and exits 1
# if anything does. NAMEs select runs; those that others start from run in any case.
# Recipes and options here keep old names, which a program from before a renaming knows, too.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,7p' "$0" | cut -c3- >&2; exit 2; }
[ $# -ge 2 ] || usage
hone=$(realpath "$1")
out=$(realpath -m "$2")
shift 2
against=""
names=()
while [ $# -gt 0 ]; do
  case $1 in
    --against) [ $# -ge 2 ] || usage; against=$2; shift 2 ;;
    -*) usage ;;
    *) names+=("$1"); shift ;;
  esac
done
[ -d "$against" ] && against=$against/sums.txt
[ -z "$against" ] || [ -f "$against" ] || { echo "bits: $against is neither a file of sums nor a folder with sums.txt" >&2; exit 1; }
[ -x "$hone" ] || { echo "bits: $hone is no program" >&2; exit 1; }

# Recipes read these.
export HONE_BITS=$here HONE_BITS_DATA=$out/data HONE_BITS_RUNS=$out/runs
export HONE_BITS_MODEL=$out/runs/quickstart/checkpoints/pretrain/step-60
kept=$out/kept
trained=$out/runs/quickstart/checkpoints/grpo/step-6
processes=()
trap 'for process in "${processes[@]}"; do kill "$process" 2>/dev/null || true; done' EXIT

say() { printf '%-16s %s\n' "$1" "$2" >&2; }

# quietly LOG COMMAND...: what it says goes to the log, and is shown if it fails.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { echo "bits: failed: $*" >&2; tail -n 20 "$log" >&2; exit 1; }
}

# keep FILE NAME: text is kept without what differs on purpose, other files as they are.
keep() {
  local target
  target=$kept/$(sed -E -f "$here/renames.sed" <<<"$2")
  mkdir -p "$(dirname "$target")"
  case $1 in
    *.safetensors | *.bin) cp "$1" "$target" ;;
    *) sed -E -e "s|$out|OUT|g" -e "s|$here|BITS|g" -f "$here/timeless.sed" -f "$here/renames.sed" "$1" >"$target" ;;
  esac
}

# What a run leaves: its checkpoints (not their manifests, which hold sums of files with times), its logs and its report.
keep_run() {
  local file
  while IFS= read -r file; do
    keep "$out/runs/$1/$file" "$1/$file"
  done < <(cd "$out/runs/$1" && find checkpoints data tokenizer metrics.jsonl samples.jsonl report.json -type f \
    ! -name manifest.json ! -name keep 2>/dev/null | sort)
}

# recipe NAME FILE OVERRIDES...
recipe() {
  local name=$1 file=$2
  shift 2
  rm -rf "$out/runs/$name"
  quietly "$out/log/$name" "$hone" run "$here/$file" runs="$out/runs" name="$name" "$@"
  keep_run "$name"
}

# start LOG ARGUMENTS...: a server, which ends with this script.
start() {
  local log=$1
  shift
  : >"$log"   # there before port() looks
  "$hone" "$@" >"$log" 2>&1 &
  processes+=($!)
}

# port LOG: of the server that writes this log, once it listens.
port() {
  local i found=""
  for ((i = 0; i < 600; ++i)); do
    found=$(sed -nE 's|.* at https?://[^ ]*:([0-9]+).*|\1|p' "$1" | head -n 1)
    [ -n "$found" ] && break
    sleep 0.1
  done
  [ -n "$found" ] || { echo "bits: no server listens; its log is $1" >&2; exit 1; }
  echo "$found"
}

generated() { "$hone" data generate --generator "$1" --split "$2" --limit "$3" --out - "${@:4}"; }

# Rows for recipes and tasks, from the program's generators: {"prompt": P, "completion": C, "answer": A}.
make_data() {
  mkdir -p "$out/data"
  local fields='^\{"prompt": (".*"), "completion": (".*"), "answer": "(.*)"\}$'
  generated arithmetic test 64 digits=2 heldout=500 worked=0.4 >"$out/data/problems.jsonl"
  generated word_problems train 80 problems=500 heldout=50 >"$out/data/word_problems.jsonl"
  generated arithmetic train 80 digits=2 heldout=500 worked=0.4 seed=5 >"$out/data/sums.jsonl"
  sed -E "s/$fields/{\"prompt\": \\1, \"chosen\": \\2, \"rejected\": \"~\\3\", \"margin\": 0.5}/" "$out/data/sums.jsonl" >"$out/data/pairs.jsonl"
  sed -E -e "s/$fields/{\"prompt\": \\1, \"completion\": \\2, \"label\": true}/;n" \
    -e "s/$fields/{\"prompt\": \\1, \"completion\": \"~\\3\", \"label\": false}/" "$out/data/sums.jsonl" >"$out/data/labelled.jsonl"
  sed -E "s/$fields/{\"query\": \\1, \"choices\": [\"=\\3\", \"=1\\3\", \"=7\"], \"gold\": 0}/" "$out/data/problems.jsonl" >"$out/data/choices.jsonl"
  local file
  for file in "$out"/data/*.jsonl; do keep "$file" "data/$(basename "$file")"; done
}

workers() {
  local urls="" i
  for i in 1 2; do
    start "$out/log/worker_$i" worker --listen 127.0.0.1:0
    urls+="${urls:+, }\"http://127.0.0.1:$(port "$out/log/worker_$i")\""
  done
  recipe workers workers.toml "rollout.workers=[$urls]"
}

evaluate() {
  local task file
  for task in generate multiple_choice loglikelihood perplexity; do
    quietly "$out/log/eval_$task" "$hone" eval --model "$trained" --tasks "$here/tasks/$task.toml" --samples 2 --seed 3 --bootstrap-iters 100 \
      --out "$out/eval/$task"
    while IFS= read -r file; do keep "$out/eval/$task/$file" "eval/$task/$file"; done < <(cd "$out/eval/$task" && ls | grep '\.jsonl\?$')
  done
}

# request PORT METHOD PATH BODY: the answer, headers and all.
request() {
  local connection
  exec {connection}<>"/dev/tcp/127.0.0.1/$1"
  printf '%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
    "$2" "$3" "${#4}" "$4" >&"$connection"
  cat <&"$connection"
  exec {connection}>&-
}

serve() {
  local at name method path body
  mkdir -p "$out/answers"
  start "$out/log/serve" serve --model "$trained" --port 0 --served-model-name bits --format plain --seed 5 --kv-cache-tokens 8192
  at=$(port "$out/log/serve")
  while read -r name method path body; do
    request "$at" "$method" "$path" "$body" >"$out/answers/$name"
    keep "$out/answers/$name" "serve/$name"
  done <"$here/requests.txt"
}

# All runs, in their order: what is called NAME, then how it is run.
runs=(
  "sft             recipe sft sft.toml"
  "dpo             recipe dpo dpo.toml"
  "kto             recipe kto kto.toml"
  "orpo            recipe orpo orpo.toml"
  "reward_model    recipe reward_model reward_model.toml"
  "grpo            recipe grpo grpo.toml"
  "ppo_shared      recipe ppo_shared ppo_shared.toml"
  "ppo_separate    recipe ppo_separate ppo_separate.toml"
  "lora_grpo       recipe lora_grpo lora_grpo.toml"
  "async           recipe async async.toml"
  "workers         workers"
  "speculative     recipe speculative speculative.toml"
  "fp8             recipe fp8 fp8.toml"
  "family_llama    recipe family_llama family.toml model.family=llama stage.0.optimizer=adamw stage.0.recompute=block"
  "family_mistral  recipe family_mistral family.toml model.family=mistral stage.0.optimizer=sgd stage.0.lr_scheduler_type=wsd stage.0.decay_ratio=0.4"
  "family_qwen2    recipe family_qwen2 family.toml model.family=qwen2 stage.0.optimizer=rmsprop stage.0.lr_scheduler_type=linear"
  "family_qwen3    recipe family_qwen3 family.toml model.family=qwen3 stage.0.optimizer=adamw stage.0.lr_scheduler_type=constant"
  "family_gpt2     recipe family_gpt2 family.toml model.family=gpt2 stage.0.optimizer=adamw stage.0.recompute=selective"
  "eval            evaluate"
  "serve           serve"
)

for name in "${names[@]}"; do
  printf '%s\n' data quickstart "${runs[@]}" | grep -q "^$name\( \|$\)" || { echo "bits: no run is called $name" >&2; exit 2; }
done
rm -rf "$kept"
mkdir -p "$out/log" "$kept"
say data "$out/data"
make_data
say quickstart "$out/log/quickstart"
recipe quickstart quickstart.toml
for run in "${runs[@]}"; do
  read -r name what <<<"$run"
  [ ${#names[@]} -eq 0 ] || [[ " ${names[*]} " = *" $name "* ]] || continue
  say "$name" "$out/log/$name"
  $what
done
(cd "$kept" && find . -type f | cut -c3- | LC_ALL=C sort | xargs sha256sum) >"$out/sums.txt"
say sums "$out/sums.txt"
[ -n "$against" ] || exit 0

# Of the other sums only those of what ran here.
ran=$(cd "$kept" && ls | tr '\n' '|')
differences=$(LC_ALL=C join -1 2 -2 2 -a 1 -a 2 -e none -o 0,1.1,2.1 "$out/sums.txt" <(grep -E "  (${ran%|})/" "$against") |
  awk '$2 == "none" { print "only there  " $1; next } $3 == "none" { print "only here   " $1; next } $2 != $3 { print "differs     " $1 }')
[ -n "$differences" ] || { echo "bits: equal"; exit 0; }
echo "$differences"
exit 1
