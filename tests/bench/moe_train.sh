#!/usr/bin/env bash
# Training a mixture of experts (OLMoE-1B-7B's shape) on one GPU, and a compiled PyTorch model beside it, in one run:
#   moe_train.sh HONE OUT
# OUT gets a JSON line of each measurement (results.jsonl); the last line printed is hone's speed over PyTorch's.
# hone keeps f32 gradients and bf16 moments. Each program repeats parts of its forward pass only if RECOMPUTE (hone's)
# or PEER_RECOMPUTE say so.
# Environment: SHAPE, TOKENS of a step, MICRO tokens of a micro-batch, LENGTH of a sequence, REPEATS, RECOMPUTE (none,
# selective or full), PEER_RECOMPUTE (none or block), DEVICE (cpu for a trial), PYTHON (default: python3).
set -euo pipefail
hone=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
shape=${SHAPE:-olmoe-1b-7b} tokens=${TOKENS:-16384} micro=${MICRO:-8192} length=${LENGTH:-1024} repeats=${REPEATS:-10}
device=${DEVICE:-cuda} python=${PYTHON:-python3}
if [ "$device" = cuda ] && ! nvidia-smi >/dev/null 2>&1; then
  echo "skipped: no GPU" >&2
  exit 77
fi
mkdir -p "$out"
results="$out/results.jsonl"

value() { grep -oE "\"$2\": ?[0-9.e+-]+" <<<"$1" | head -1 | grep -oE '[0-9.e+-]+$'; }

own=$("$hone" bench train --device "$device" --shape "$shape" --batch $((tokens / length)) --tokens "$length" \
  --micro-batch-tokens "$micro" --repeats "$repeats" --moments bf16 --recompute "${RECOMPUTE:-selective}" --json)
peer=$("$python" "$here/peers/torch_moe.py" --device "$device" --shape "$shape" --tokens "$tokens" \
  --micro-batch-tokens "$micro" --length "$length" --steps "$repeats" --recompute "${PEER_RECOMPUTE:-none}")
printf '%s\n%s\n' "$own" "$peer" >"$results"
awk -v own="$(value "$own" tok_s)" -v peer="$(value "$peer" tokens_per_second)" \
  'BEGIN { printf "hone %.0f tokens/s, PyTorch %.0f tokens/s, ratio %.2f\n", own, peer, own / peer }'
