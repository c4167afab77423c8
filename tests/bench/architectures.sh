#!/usr/bin/env bash
# Studies of architectures and optimizers: pretraining of small models on children's books, several runs side by side on
# one GPU:
#   architectures.sh HONE DATA OUT
# DATA is the folder HONE_DATA. Each run is configs/architectures/pretrain.toml with a shape and a seed of its own. OUT
# gets the runs (without checkpoints), tables.md, tables.csv and load.csv (tests/bench/architectures.py). Runs that OUT
# already has are kept, so that a second call goes on where the first one ended. Exit status 1: a run failed or
# diverged, or the time was up (failed.txt).
# Parts, and what they compare:
#   moe        experts with a dense model of equally many active parameters
#   balance    a router with the loss of Switch, with a bias, and with nothing that balances it
#   attention  multi-head, grouped-query, multi-query and latent attention, windows, shared keys and values
#   norms      norms before the sublayers, after them, and both, over learning rates
#   muon       Muon and AdamW over learning rates
# Environment: PARTS, SEEDS, STEPS, JOBS (runs at a time), DEVICE (cpu for a trial), THREADS of a run, LIMIT (seconds
# for all), RUN_LIMIT (seconds for one), MOE_RATES, NORM_RATES and MUON_RATES (learning rates), BIAS_RATES (steps of a
# router's bias), OVERRIDES (of all runs, as "stage.pretrain.batch_size=2 eval.0.limit=1").
set -euo pipefail
[ $# = 3 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
hone=$(realpath "$1")
HONE_DATA=$(realpath "$2")
export HONE_DATA
mkdir -p "$3/logs" "$3/plans"
out=$(realpath "$3")
cd "$(dirname "$0")/../.."
parts=${PARTS:-moe balance attention norms muon} seeds=${SEEDS:-1 2 3} steps=${STEPS:-300} jobs=${JOBS:-8}
device=${DEVICE:-cuda} limit=${LIMIT:-540} run_limit=${RUN_LIMIT:-180}
norm_rates=${NORM_RATES:-1e-3 3e-3 1e-2 3e-2} muon_rates=${MUON_RATES:-1e-3 3e-3 1e-2}
moe_rates=${MOE_RATES:-3e-3} bias_rates=${BIAS_RATES:-1e-3 1e-2}
threads=${THREADS:-$((($(nproc) + jobs - 1) / jobs))}
recipe=configs/architectures/pretrain.toml
default_rate=$(sed -n 's/^learning_rate = \([^ ]*\).*/\1/p' "$recipe")
if [ "$device" = cuda ] && ! nvidia-smi >/dev/null 2>&1; then
  echo "skipped: no GPU" >&2
  exit 77
fi
books=$HONE_DATA/pretrain/books_children.jsonl.gz
[ -f "$books" ] || { echo "$books is missing: DATA is the folder HONE_DATA" >&2; exit 2; }

# at RATE VARIANT OVERRIDE...: the variant at a learning rate. That of the recipe has no name of its own.
at() {
  local rate=$1 variant=$2
  shift 2
  [ "$rate" = "$default_rate" ] || { variant+="-lr$rate" && set -- "$@" "stage.pretrain.learning_rate=$rate"; }
  echo "$variant $*"
}
# variants PART: a line for each variant: its name, which begins with its shape, and its overrides. Parts may share
# variants.
variants() {
  local rate shape
  case $1 in
    moe) for rate in $moe_rates; do for shape in dense moe_8_top1 moe_8_top2 moe_32_shared; do at "$rate" $shape; done; done ;;
    balance)
      echo "moe_8_top1-unbalanced model.router.aux_loss_coef=0"
      echo "moe_8_top1"
      for rate in $bias_rates; do
        echo "moe_8_top1-bias$rate model.router.aux_loss_coef=0 model.router.bias_update_rate=$rate"
      done
      ;;
    attention) printf '%s\n' dense gqa mqa mla windows kv_share ;;
    norms) for shape in dense post_norm both_norms; do for rate in $norm_rates; do at "$rate" "$shape"; done; done ;;
    muon)
      for rate in $muon_rates; do
        at "$rate" dense
        at "$rate" dense-muon stage.pretrain.optimizer=muon
      done
      ;;
    *)
      echo "PARTS has '$1'; known: moe balance attention norms muon" >&2
      return 1
      ;;
  esac
}

# train SEED VARIANT OVERRIDE...: plans and runs one variant. Its log says why it failed.
train() {
  local seed=$1 variant=$2 name=$2-s$1
  shift 2
  # shellcheck disable=SC2206
  local settings=(name="$name" runs="$out/runs" seed="$seed" device="$device" threads="$threads" ${OVERRIDES:-}
    model.config="configs/architectures/${variant%%-*}.json" stage.pretrain.steps="$steps" "$@")
  local left=$((deadline - SECONDS))
  rm -rf "$out/runs/$name"
  if [ ! -f "$out/plans/$variant.json" ]; then
    if ! "$hone" plan --json --gpu H100 "$recipe" "${settings[@]}" >"$out/plans/.$name" 2>"$out/logs/$name.log"; then
      echo "$name: $(tail -1 "$out/logs/$name.log")" >&2
      return 1
    fi
    mv "$out/plans/.$name" "$out/plans/$variant.json"
  fi
  if ! timeout -k 10 $((left < run_limit ? left : run_limit)) "$hone" run "$recipe" "${settings[@]}" \
      >"$out/logs/$name.log" 2>&1; then
    echo "$name: $(tail -1 "$out/logs/$name.log")" >&2
    return 1
  fi
  rm -rf "$out/runs/$name/checkpoints" "$out/runs/$name/data"
}

# Each variant once, all of one seed before the next: if the time is up, the tables have fewer seeds.
: >"$out/parts.tsv"
for part in $parts; do
  lines=$(variants "$part")
  while read -r line; do printf '%s\t%s\n' "$part" "${line%% *}" >>"$out/parts.tsv"; done <<<"$lines"
  all+="$lines"$'\n'
done
all=$(sed 's/ *$//; /^$/d' <<<"$all" | sort -u)
deadline=$((SECONDS + limit))
: >"$out/failed.txt"
for seed in $seeds; do
  while read -r variant overrides; do
    [ -f "$out/plans/$variant.json" ] && grep -qs '"finished": true' "$out/runs/$variant-s$seed/report.json" && continue
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    if [ $((deadline - SECONDS)) -lt 10 ]; then
      echo "the time is up: $variant-s$seed and later runs are missing" | tee -a "$out/failed.txt" >&2
      break 2
    fi
    # shellcheck disable=SC2086
    { train "$seed" "$variant" $overrides || echo "$variant-s$seed" >>"$out/failed.txt"; } &
  done <<<"$all"
done
wait
python3 tests/bench/architectures.py "$out"
[ ! -s "$out/failed.txt" ]
