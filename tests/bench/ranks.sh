#!/usr/bin/env bash
# Weak scaling of training on the GPUs of one machine, and PyTorch FSDP2 beside it, in one run:
#   ranks.sh HONE OUT
# A micro-batch has 16,384 tokens, and a rank has one or four in a step. OUT gets a JSON line of every measurement
# (results.jsonl) and the printed table.
# Rows: for each shape 1 and N ranks of hone with ZeRO 1, 2 and 3, with one and four micro-batches per rank, and the peer
# (tests/bench/peers/torch_fsdp.py) without and with resharding. The ratio is tokens/s over one rank of hone's; of the
# peer, hone's best over it.
# Environment: RANKS (default: the GPUs, 2 at most), SHAPES, ZEROS, REPEATS, DEVICE (cpu for a trial), TOKENS of a
# micro-batch, LENGTH of a sequence (the table of docs/benchmarks/h200-x2.md has 4096 for llama3-8b), TORCHRUN
# (default: torchrun; empty or missing: no peer), PEER_OPTIONS.
set -euo pipefail
hone=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
device=${DEVICE:-cuda} tokens=${TOKENS:-16384} length=${LENGTH:-1024} repeats=${REPEATS:-10}
shapes=${SHAPES:-qwen2.5-0.5b qwen2.5-1.5b llama3-8b} zeros=${ZEROS:-1 2 3} torchrun=${TORCHRUN-torchrun}
if [ -z "${RANKS:-}" ]; then
  count=$(nvidia-smi --list-gpus 2>/dev/null | wc -l) || count=0
  [ "$count" -ge 2 ] || { echo "skipped: fewer than two GPUs" >&2; exit 77; }
  RANKS=2
fi
mkdir -p "$out"
results="$out/results.jsonl"
: >"$results"

value() { grep -oE "\"$2\": ?[0-9.e+-]+" <<<"$1" | head -1 | grep -oE '[0-9.e+-]+$'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }
# row NAME JSON RATIO
row() {
  printf '%-44s %12.0f tokens/s %8.1f TFLOP/s a rank %7.1f GB %8s\n' "$1" "$(value "$2" tokens_per_second)" \
    "$(value "$2" model_tflops)" "$(value "$2" peak_gb)" "$3" | tee -a "$out/table.txt"
}
# What a shape needs to fit: 8B repeats parts of its forward pass and keeps bf16 moments.
options_of() { if [ "$1" = llama3-8b ]; then echo "--recompute selective --moments bf16"; fi; }

# train SHAPE RANKS MICRO_BATCHES OPTION...: sets json. No line: it failed, and OUT/train.err says why.
train() {
  local shape=$1 ranks=$2 micro=$3
  shift 3
  local batch=$((tokens * micro * ranks / length))
  # shellcheck disable=SC2046
  json=$("$hone" bench train --device "$device" --shape "$shape" --batch "$batch" --tokens "$length" \
    --micro-batch-tokens "$tokens" --repeats "$repeats" --json $(options_of "$shape") "$@" 2>"$out/train.err") || return 1
  echo "$json" >>"$results"
}

# best A B: the larger.
best() { awk -v a="$1" -v b="$2" 'BEGIN { print (a > b ? a : b) }'; }

measure_peer() {
  local shape=$1 fastest=$2 extra=()
  if [ -z "$torchrun" ] || ! command -v "$torchrun" >/dev/null; then echo "no peer: $torchrun is missing"; return; fi
  [ "$shape" = llama3-8b ] && extra=(--recompute block)
  for reshard in no yes; do
    # shellcheck disable=SC2086
    if json=$("$torchrun" --standalone --nproc-per-node "$RANKS" "$here/peers/torch_fsdp.py" --device "$device" \
        --shape "$shape" --tokens "$tokens" --micro-batch-tokens "$tokens" --length "$length" --steps "$repeats" \
        --reshard "$reshard" ${PEER_OPTIONS:-} "${extra[@]}" 2>"$out/peer.err" | grep '^{'); then
      echo "$json" >>"$results"
      row "$shape, FSDP2, $RANKS ranks, reshard $reshard" "$json" "$(ratio "$fastest" "$(value "$json" tokens_per_second)")"
    else
      echo "$shape, FSDP2, reshard $reshard: failed: $(tail -1 "$out/peer.err")" | tee -a "$out/table.txt"
    fi
  done
}

: >"$out/table.txt"
for shape in $shapes; do
  fastest=0
  for micro in 1 4; do
    one=0
    if train "$shape" 1 "$micro"; then
      one=$(value "$json" tokens_per_second)
      row "$shape, 1 rank, $micro micro-batch(es)" "$json" 1
    else
      echo "$shape, 1 rank: $(tail -1 "$out/train.err")" | tee -a "$out/table.txt"
    fi
    for zero in $zeros; do
      if ! train "$shape" "$RANKS" "$micro" --ranks "$RANKS" --zero "$zero"; then
        echo "$shape, $RANKS ranks, ZeRO-$zero: $(tail -1 "$out/train.err")" | tee -a "$out/table.txt"
        continue
      fi
      rate=$(value "$json" tokens_per_second)
      [ "$micro" = 4 ] || fastest=$(best "$fastest" "$rate")
      row "$shape, $RANKS ranks, ZeRO-$zero, $micro micro-batch(es)" "$json" \
        "$(if [ "$one" = 0 ]; then echo -; else ratio "$rate" "$one"; fi)"
    done
  done
  measure_peer "$shape" "$fastest"
done
