#!/usr/bin/env bash
# Runs GPU tests, each in its own process, in one or several ways:
#   suite.sh PROGRAM FOLDER [WAY...]
# WAY: default; portable, the bodies that every GPU has (HONE_CUDA_BODIES); ptx, PTX compiled by the driver (of a build
# with 80-virtual among its architectures); racecheck, initcheck, memcheck, the tools of compute-sanitizer, with few
# cases (HONE_GPU_CASES in gpu_check.h). Without a WAY: default and portable.
# FOLDER gets the output of each test and results.txt, a line for each test and way. Fails unless each test passes or is
# skipped; racecheck's reports of cuBLASLt's kernels are not failures.
# Environment: CUDA_VISIBLE_DEVICES; GPU_TEST_JOBS, tests at a time; GPU_TEST_SECONDS, time limit of a test;
# GPU_TEST_FILTER, a regular expression of test names; GPU_TEST_END, seconds after which no other test begins.
set -euo pipefail
export program=$1 folder=$2 seconds=${GPU_TEST_SECONDS:-600} end=${GPU_TEST_END:-0} sanitizer=
shift 2
[ $# -gt 0 ] || set -- default portable
for way in "$@"; do
  case $way in
    default | portable | ptx) ;;
    racecheck | initcheck | memcheck)
      sanitizer=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -1) ||
        { echo "compute-sanitizer is missing: it comes with the CUDA Toolkit" >&2; exit 1; } ;;
    *) echo "'$way' is not a way of running the tests; known: default, portable, ptx, racecheck, initcheck, memcheck" >&2; exit 2 ;;
  esac
done
count=$(nvidia-smi --list-gpus | wc -l) || { echo "no GPU: nvidia-smi lists none" >&2; exit 1; }
jobs=${GPU_TEST_JOBS:-$(($(nproc) * 2 / 3))}
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((count - 1)))}"
mkdir -p "$folder"
: >"$folder/results.txt"
clock=$(date +%s)
export clock

# run_one WAY TEST GPUS: GPUS are all visible GPUs, the one to use first.
run_one() {
  local log="$folder/$1.${2//\//_}.txt" begin=$SECONDS rc=0 reports=0 library=0 word=passed
  local command=(env "CUDA_VISIBLE_DEVICES=$3")
  case $1 in
    default) ;;
    portable) command+=(HONE_CUDA_BODIES=portable) ;;
    ptx) command+=(CUDA_FORCE_PTX_JIT=1) ;;
    *) command+=("HONE_GPU_CASES=${HONE_GPU_CASES:-11}" "$sanitizer" --max-connections 256 --tool "$1" --print-limit 0) ;;
  esac
  if [ "$end" != 0 ] && [ $(($(date +%s) - clock)) -ge "$end" ]; then
    printf '%-9s %-88s %5d s  %s\n' "$1" "$2" 0 "not begun in $end s" >>"$folder/results.txt"
    return
  fi
  timeout -k 5 "$seconds" "${command[@]}" "$program" --gtest_filter="$2" >"$log" 2>&1 || rc=$?
  case $1 in
    racecheck | initcheck | memcheck) reports=$(grep -oE 'SUMMARY: [0-9]+' "$log" | tail -1 | grep -oE '[0-9]+' || echo unknown) ;;
  esac
  if [ "$1" = racecheck ] && [ "$reports" != unknown ]; then   # the first line of a report names the kernel
    library=$(grep -cE '^=+ (Error|Warning): Race reported .* (nvjet_|.*cublasLt::)' "$log" || true)
    reports=$((reports - library))
  fi
  if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then word="not ended in $seconds s"
  elif [ "$rc" != 0 ] || grep -q '^\[  FAILED' "$log"; then word="failed ($rc)"
  elif [ "$reports" != 0 ]; then word="$reports reports"
  elif grep -q '^\[  SKIPPED' "$log"; then word=skipped
  elif ! grep -q '^\[  PASSED  \] 1 test' "$log"; then word="did not run"; fi
  [ "$library" = 0 ] || word="$word, $library in kernels of cuBLASLt"
  printf '%-9s %-88s %5d s  %s\n' "$1" "$2" $((SECONDS - begin)) "$word" >>"$folder/results.txt"
}
export -f run_one

# Long tests come first. Sanitizers skip NCCL's tests, which run none of hone's kernels.
"$program" --gtest_list_tests | awk '/^[^ ].*\./ { suite = $1; next } /^  / { print suite $1 }' | { grep -E "${GPU_TEST_FILTER:-.}" || true; } |
  awk '/Trainer|Sampl|Lora|Propos|Think|Threads|Famil|ProjectBetween|RowsDoNotDepend|AddsOnce/ { print; next } { rest[n++] = $0 } END { for (i = 0; i < n; i++) print rest[i] }' >"$folder/tests.txt"
for way in "$@"; do
  case $way in
    *check) sed "/^DeviceLink/d; s/^/$way /" "$folder/tests.txt" ;;
    *) sed "s/^/$way /" "$folder/tests.txt" ;;
  esac
done >"$folder/runs.txt"
awk -v gpus="${gpus[*]}" 'BEGIN { n = split(gpus, gpu, " ") }
  { seen = gpu[NR % n + 1]; for (i = 1; i < n; i++) seen = seen "," gpu[(NR + i) % n + 1]; print $0, seen }' "$folder/runs.txt" |
  xargs -r -P "$((jobs > 0 ? jobs : 1))" -L 1 bash -c 'run_one "$@"' run_one
sort "$folder/results.txt" | grep -v ' passed$' || true
all=$(wc -l <"$folder/runs.txt") passed=$(grep -cE ' s  passed($|,)' "$folder/results.txt" || true) skipped=$(grep -cE ' s  skipped($|,)' "$folder/results.txt" || true)
echo "$passed of $all passed, $skipped skipped"
[ "$passed" -gt 0 ] && [ $((passed + skipped)) = "$all" ]
