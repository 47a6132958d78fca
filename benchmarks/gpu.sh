#!/bin/sh
# What a GPU computes and how fast, in parts that fail apart from each other; one JSON, OUT/gpu.json.
#
#     benchmarks/gpu.sh [--out OUT] [--parts NAME,NAME] [--seconds S] [--dry]
#
# All parts compile from cold and take longer than the 520 s of one call. Two calls give everything:
#
#     benchmarks/gpu.sh --out OUT/1 --parts first     speed, its share of the peak, memory, the cost of vectors
#     benchmarks/gpu.sh --out OUT/2 --parts second    correctness of all else, small trials side by side
#
# --help lists the parts in their order. Needs no installation and writes nothing but OUT (benchmarks/gpu-out)
# and temporary files: of the packages torch, numpy, pandas, scipy, safetensors, tokenizers and pyarrow are
# enough. PYTHON names the interpreter. --dry runs it on the CPU at toy size, compiled as on a card.
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
links=$(mktemp -d)
trap 'rm -rf "$links"' EXIT
export PYTHONPATH="$folder/../src" PYTHONDONTWRITEBYTECODE=1 TORCHINDUCTOR_CACHE_DIR="$links/compiled"
export SCALEVEC_CACHE_DIR="$links/cache"
# As a worker has them.
export TORCHINDUCTOR_COMPILE_THREADS="${TORCHINDUCTOR_COMPILE_THREADS:-4}"
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
"${PYTHON:-python3}" "$folder/gpu/main.py" "$@"
