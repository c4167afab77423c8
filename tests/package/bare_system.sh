#!/usr/bin/env bash
# Installs the packages of a build into bare trees of distributions and runs the quickstart there, whole in the first:
#   bare_system.sh PACKAGES WORK [SUITE...]
# PACKAGES: folder with one .deb and one .tar.gz (./dev package). WORK: folder for the trees; debootstrap fills one for
# each suite (default bookworm; jammy and noble are Ubuntu 22.04 and 24.04) and a later run copies it. Exit code 77:
# skipped, with the reason.
set -euo pipefail

skip() { echo "skipped: $*"; exit 77; }
say() { echo "== $*"; }

[ $# -ge 2 ] || { echo "usage: bare_system.sh PACKAGES WORK [SUITE...]" >&2; exit 2; }
packages=$1
work=$2
shift 2
suites=("${@:-bookworm}")

deb=$(ls "$packages"/*.deb 2>/dev/null | tail -n 1)
tarball=$(ls "$packages"/*.tar.gz 2>/dev/null | tail -n 1)
[ -n "$deb" ] && [ -n "$tarball" ] || skip "no packages in $packages: run ./dev package"
[ "$(id -u)" -eq 0 ] || skip "chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
unshare --mount true 2>/dev/null || skip "this machine does not allow unshare --mount"
mkdir -p "$work"

# A bare tree of the suite in $work/SUITE; kept for later runs.
make_tree() {
  local suite=$1 mirror=http://deb.debian.org/debian options=() script=()
  [ ! -e "$work/$suite/.complete" ] || return 0
  case $suite in
    jammy | noble)
      mirror=http://archive.ubuntu.com/ubuntu
      local keys=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
      [ -e "$keys" ] || { echo "no keys of Ubuntu's archive at $keys: set UBUNTU_KEYRING"; return 1; }
      options=(--keyring="$keys")
      script=(/usr/share/debootstrap/scripts/gutsy)   # of all Ubuntu suites, also of those younger than debootstrap
      ;;
  esac
  rm -rf "${work:?}/$suite"
  local log=$work/$suite.log
  debootstrap --variant=minbase "${options[@]}" "$suite" "$work/$suite" "$mirror" "${script[@]}" >"$log" 2>&1 ||
    { tail -n 3 "$log"; return 1; }
  touch "$work/$suite/.complete"
}

# Runs a command in a tree with /proc. The mount ends with the command.
inside() {
  local tree=$1
  shift
  unshare --mount --pid --fork --mount-proc="$tree/proc" \
    chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"
}

expect() {  # text, file
  grep -qF -- "$1" "$2" || { echo "expected '$1' in:"; cat "$2"; exit 1; }
}

# What a user does first: program, recipe and task are found, and the recipe's last stage has learned to add.
check_program() {  # tree, program, overrides of the recipe...
  local tree=$1 hone=$2
  shift 2
  local out=$work/out.txt
  inside "$tree" "$hone" --version | tee "$out"
  inside "$tree" "$hone" doctor >"$out"
  expect "ok   cpu" "$out"
  inside "$tree" "$hone" list ops >"$out"
  expect "gemm_forward" "$out"
  inside "$tree" "$hone" list tasks >"$out"
  expect "gsm8k" "$out"
  if inside "$tree" "$hone" --version | grep -q "CUDA [0-9]"; then check_without_gpu "$tree" "$hone"; fi
  inside "$tree" "$hone" run configs/quickstart.toml runs=/root/runs "$@" 2>"$out" || { cat "$out"; exit 1; }
  [ -s "$tree/root/runs/quickstart/report.md" ] || { echo "no report"; exit 1; }
}

# The CUDA build on a machine without a GPU, a driver and CUDA's libraries.
check_without_gpu() {
  local out=$work/out.txt
  if compgen -G '/dev/nvidia[0-9]*' >/dev/null; then return; fi
  inside "$1" "$2" doctor >"$out"
  expect "no NVIDIA driver" "$out"
  expect "cuBLASLt" "$out"
  if inside "$1" "$2" run configs/quickstart.toml runs=/root/gpu device=cuda 2>"$out"; then
    echo "a run on a GPU that is not there"
    exit 1
  fi
  expect "no NVIDIA driver" "$out"
  [ ! -e "$1/root/gpu" ] || { echo "it made a run folder"; exit 1; }
}

learned_to_add() {  # report.json: the greedy accuracy after GRPO is 0.8 or more
  python3 -c "
import json, sys
stages = {stage['name']: stage for stage in json.load(open(sys.argv[1]))['stages']}
accuracy = stages['grpo']['accuracy']
print('accuracy after GRPO:', accuracy)
sys.exit(accuracy < 0.8)" "$1"
}

few_steps=(stage.pretrain.steps=10 stage.sft.steps=4 stage.grpo.steps=3 eval.0.limit=20)
done_any=0
for suite in "${suites[@]}"; do
  make_tree "$suite" || { say "$suite: no tree"; continue; }
  tree=$work/test-$suite
  steps=()   # the whole quickstart, once
  [ "$done_any" = 0 ] || steps=("${few_steps[@]}")
  say "$suite: $(basename "$deb")"
  rm -rf "$tree"
  cp -a "$work/$suite" "$tree"
  cp "$deb" "$tree/root/hone.deb"
  inside "$tree" dpkg -i /root/hone.deb
  check_program "$tree" hone "${steps[@]}"
  [ "$done_any" = 1 ] || learned_to_add "$tree/root/runs/quickstart/report.json"
  for file in usr/share/man/man1/hone.1 usr/share/bash-completion/completions/hone usr/share/doc/hone/README.md; do
    [ -s "$tree/$file" ] || [ -s "$tree/$file.gz" ] || { echo "the package lacks $file"; exit 1; }
  done
  say "$suite: $(basename "$tarball")"
  rm -rf "$tree"
  cp -a "$work/$suite" "$tree"
  mkdir "$tree/opt/place"
  tar -C "$tree/opt/place" --strip-components=1 -xzf "$tarball"
  check_program "$tree" /opt/place/bin/hone "${few_steps[@]}"
  rm -rf "$tree"
  done_any=1
done
[ "$done_any" = 1 ] || skip "no suite could be installed"
say "passed"
