#!/usr/bin/env bash
# Ranks on the GPUs of this machine, at sizes and for times that no unit test has:
#   ranks.sh HONE OUT [BASE]
# HONE is the program; OUT gets logs, runs and summary.txt. BASE is an older program: one GPU must not train more slowly
# than with it. Parts:
#   comm     hone bench comm for two ranks on one GPU, and on two GPUs if the machine has them
#   bytes    pretrain, SFT and GRPO at the layer sizes of qwen2.5-0.5b, bf16 and f32 moments: model files and metrics of
#            2 and 4 ranks with ZeRO-2 and ZeRO-3 equal those of one
#   signal   SIGKILL leaves no process; SIGTERM saves once; the resumed run has the files of the uninterrupted one
#   speed    hone bench train of HONE and of BASE in turn
# Exits with 1 if a part fails, 77 without a GPU. Environment: PARTS, the parts to run; LAYOUTS of bytes, GPUs:ranks or
# GPUs:ranks:ZeRO; CUDA_VISIBLE_DEVICES.
set -euo pipefail
hone=$1 out=$2 base=${3:-}
count=$(nvidia-smi --list-gpus 2>/dev/null | wc -l) || count=0
[ "$count" -gt 0 ] || { echo "skipped: no GPU" >&2; exit 77; }
mkdir -p "$out"
out=$(cd "$out" && pwd)
: >"$out/summary.txt"
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((count - 1)))}"
failed=0
say() { echo "$*" | tee -a "$out/summary.txt"; }
wrong() { say "FAILED: $*"; failed=1; }
wanted() { [[ " ${PARTS:-comm bytes signal speed} " == *" $1 "* ]]; }
first_gpus() { (IFS=,; echo "${gpus[*]:0:$1}"); }

cat >"$out/recipe.toml" <<'RECIPE'
seed = 3
device = "cuda"
[model]
hidden_size = 896
intermediate_size = 4864
num_attention_heads = 14
num_key_value_heads = 2
num_hidden_layers = 4
max_position_embeddings = 512
vocab_size = 8192
[parallel]
micro_batch_multiple = 4
[[stage]]
kind = "tokenizer"
generator = { kind = "arithmetic", digits = 2, heldout = 100 }
vocab_size = 300
[[stage]]
kind = "pretrain"
generator = { kind = "arithmetic", digits = 2, heldout = 100 }
max_length = 512
batch_size = 40
micro_batch_tokens = 4096
steps = 8
save_steps = 4
save_total_limit = 0
[[stage]]
kind = "sft"
generator = { kind = "arithmetic", digits = 2, heldout = 100 }
prompt = "{prompt}"
completion = "{answer}"
batch_size = 300
micro_batch_tokens = 1024
steps = 4
[[stage]]
kind = "rl"
objective = "grpo"
generator = { kind = "arithmetic", digits = 2, heldout = 100 }
prompts_per_step = 12
num_generations = 8
micro_batch_tokens = 1024
steps = 6
save_steps = 2
save_total_limit = 0
sampling = { max_tokens = 32 }
reward = { kind = "length", limit = 32, target = 8 }
RECIPE

# run NAME GPUS KEY...: a run OUT/NAME on that many GPUs.
run() {
  local name=$1 used=$2
  shift 2
  rm -rf "${out:?}/$name"
  CUDA_VISIBLE_DEVICES=$(first_gpus "$used") "$hone" run "$out/recipe.toml" runs="$out" name="$name" "$@" \
    >"$out/$name.log" 2>&1
}
# model_sums NAME [OF]: the sums of NAME's model files with the names that OF has; a run that was stopped has one more.
model_sums() {
  local names
  names=$(cd "$out/${2:-$1}/checkpoints" && find . -name '*.safetensors' -not -path '*/trainer/*' | sort)
  (cd "$out/$1/checkpoints" && xargs sha256sum <<<"$names" 2>&1)
}
metric_rows() { grep -oE '"(step|stage|loss|grad_norm|num_tokens|[a-z_]*reward[^"]*|[a-z_/]*kl[^"]*)": ?[^,}]*' "$out/$1/metrics.jsonl"; }
# expect_same ONE OTHER
expect_same() {
  local count
  count=$(model_sums "$1" | wc -l)
  if [ "$count" -lt 4 ]; then wrong "$1 has $count model files"
  elif ! cmp -s <(model_sums "$1") <(model_sums "$2" "$1"); then wrong "the model files of $1 and $2 differ"
  elif ! cmp -s <(metric_rows "$1") <(metric_rows "$2"); then wrong "the metrics of $1 and $2 differ"
  else say "equal bytes: $1, $2 ($count model files)"; fi
}
exchange_times() { # medians over the second half of pretrain
  grep '"time/exchange"' "$out/$1/metrics.jsonl" | head -8 | tail -4 | grep -oE '"(time/exchange|time/step|tokens_per_second)": ?[^,}]*' | tr '\n' ' '
}

measure_comm() {
  for used in 1 2; do
    [ "${#gpus[@]}" -ge "$used" ] || continue
    say "two ranks on $used GPU(s):"
    CUDA_VISIBLE_DEVICES=$(first_gpus "$used") "$hone" bench comm --device cuda --ranks 2 2>"$out/comm-$used.err" |
      tee -a "$out/summary.txt" || wrong "bench comm: $(tail -1 "$out/comm-$used.err")"
  done
}

compare_bytes() {
  for moments in f32 bf16; do
    local keys=()
    for stage in pretrain sft grpo; do keys+=("stage.$stage.moments=$moments"); done
    run "one-$moments" 1 parallel.ranks=1 "${keys[@]}" || { wrong "one rank: $(tail -1 "$out/one-$moments.log")"; continue; }
    for layout in ${LAYOUTS:-1:2 1:4 2:2 2:4 1:2:3 1:4:3 2:2:3 2:4:3}; do
      local used ranks zero
      IFS=: read -r used ranks zero <<<"$layout:2"
      [ "${#gpus[@]}" -ge "$used" ] || continue
      zero=${zero%%:*}
      local name="ranks$ranks-gpus$used-zero$zero-$moments"
      run "$name" "$used" "parallel.ranks=$ranks" "parallel.zero=$zero" "${keys[@]}" || { wrong "$name: $(tail -1 "$out/$name.log")"; continue; }
      expect_same "one-$moments" "$name"
      say "  $name: $(exchange_times "$name")"
    done
  done
}

# begin NAME RANKS: starts a run and waits for its checkpoint pretrain/step-4; sets pid.
begin() {
  rm -rf "${out:?}/$1"
  CUDA_VISIBLE_DEVICES=$(first_gpus 1) "$hone" run "$out/recipe.toml" runs="$out" name="$1" "parallel.ranks=$2" >"$out/$1.log" 2>&1 &
  pid=$!
  for _ in $(seq 1200); do
    [ -f "$out/$1/checkpoints/pretrain/step-4/manifest.json" ] && return
    sleep 0.05
  done
  wrong "$1: no checkpoint after 60 s"
}
resume() { CUDA_VISIBLE_DEVICES=$(first_gpus 1) "$hone" run --resume "$out/$1" "parallel.ranks=$2" >>"$out/$1.log" 2>&1; }

end_by_signals() {
  [ -d "$out/one-f32" ] || run one-f32 1 parallel.ranks=1
  begin killed 2
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
  sleep 1
  if nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -qx "$pid"; then wrong "a killed run is still on the GPU"; fi
  begin stopped 2
  kill -TERM "$pid"
  local code=0
  wait "$pid" || code=$?
  [ "$code" = 0 ] || [ "$(grep -c 'everything is saved' "$out/stopped.log")" = 1 ] || wrong "SIGTERM: $(tail -1 "$out/stopped.log")"
  for name in killed stopped; do
    resume "$name" 3 || wrong "$name does not resume: $(tail -1 "$out/$name.log")"
    expect_same one-f32 "$name"
  done
}

compare_speed() {
  [ -n "$base" ] || { say "speed: no BASE"; return; }
  export CUDA_VISIBLE_DEVICES
  CUDA_VISIBLE_DEVICES=$(first_gpus 1)
  for shape in qwen2.5-0.5b qwen2.5-1.5b; do
    local before=0 now=0
    for _ in 1 2 3; do
      for which in base hone; do
        local rate
        rate=$("${!which}" bench train --shape "$shape" --batch 16 --tokens 1024 --repeats 7 --json | grep -oE '"tokens_per_second": ?[0-9.e+]*' | grep -oE '[0-9.e+]+$')
        if [ "$which" = base ]; then before=$(awk -v a="$before" -v b="$rate" 'BEGIN { print (a > b ? a : b) }')
        else now=$(awk -v a="$now" -v b="$rate" 'BEGIN { print (a > b ? a : b) }'); fi
      done
    done
    say "$shape on one GPU: $before tokens/s before, $now now: $(awk -v a="$now" -v b="$before" 'BEGIN { printf "%.4f", a / b }')"
    awk -v a="$now" -v b="$before" 'BEGIN { exit a >= 0.995 * b ? 0 : 1 }' || wrong "$shape is more than 0.5% slower on one GPU"
  done
}

"$hone" doctor >"$out/doctor.txt" 2>&1 || true
nvidia-smi topo -m >"$out/topology.txt" 2>&1 || true
if wanted comm; then measure_comm; fi
if wanted bytes; then compare_bytes; fi
if wanted signal; then end_by_signals; fi
if wanted speed; then compare_speed; fi
[ "$failed" = 0 ] && say "all parts passed"
exit "$failed"
