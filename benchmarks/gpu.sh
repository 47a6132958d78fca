#!/bin/sh
# What a GPU computes and how fast: correctness first, then speed, within nine minutes; one JSON, OUT/gpu.json.
#
#     benchmarks/gpu.sh [--out OUT] [--dry]
#
# Needs no installation and writes nothing but OUT (benchmarks/gpu-out) and temporary files: of the packages
# torch, numpy, pandas, scipy, safetensors, tokenizers and pyarrow are enough. PYTHON names the interpreter.
# --dry runs all of it on the CPU at toy size.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
links=$(mktemp -d)
trap 'rm -rf "$links"' EXIT
# As in a wheel: the five folders beside the modules of src/scalevec.
mkdir "$links/scalevec"
for entry in "$folder"/../src/scalevec/*.py; do
    ln -s "$entry" "$links/scalevec/"
done
for entry in analysis model orchestrator results sweeps; do
    ln -s "$folder/../$entry" "$links/scalevec/$entry"
done
export PYTHONPATH="$links" PYTHONDONTWRITEBYTECODE=1 TORCHINDUCTOR_CACHE_DIR="$links/compiled"
"${PYTHON:-python3}" "$folder/gpu/main.py" "$@"
