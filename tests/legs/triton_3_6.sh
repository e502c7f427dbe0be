#!/bin/sh
# The window's kernels under Triton 3.6.0, as machines with torch 2.11 have it: compile, emulator and interpreter suites.
# numpy < 2.4: the interpreter of Triton 3.6.0 breaks on newer ones. VENV: where the environment is kept.
set -eu
cd "$(dirname "$0")/../.."
VENV="${VENV:-.venv-triton-3.6}"
PYTHON="${PYTHON:-python3}"
test -x "$VENV/bin/python" || "$PYTHON" -m venv "$VENV"
"$VENV/bin/python" -m pip install --quiet "torch==${TORCH:-2.13.0}"
"$VENV/bin/python" -m pip install --quiet "triton==3.6.0" "numpy<2.4" "safetensors>=0.5" "hypothesis>=6.120" "pytest>=8.3" "einops>=0.8"
"$VENV/bin/python" -c "import triton; assert triton.__version__ == '3.6.0', triton.__version__"
exec "$VENV/bin/python" -m pytest -m "slow or not slow" tests/emulator tests/triton_kernels "$@"
