# Everything runs in .venv, which each target makes if it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SDKS := .venv-sdks
RUNS ?= $(CURDIR)/runs
SEEDS ?= 1 2 3
TRL := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/turnstile/trainers/trl/bin/python
RL := cd examples/rl && PYTHONPATH=$(CURDIR)/src:$(CURDIR)/examples/rl OMP_NUM_THREADS=1 TRL_EXPERIMENTAL_SILENCE=1 $(TRL) -m
SDK_TESTS := $(wildcard tests/e2e/test_*_sdk.py tests/e2e/test_*_scripted.py) tests/e2e/test_openai_responses.py \
	$(wildcard tests/protocols/test_*_encode.py)

.DEFAULT_GOAL := help
.PHONY: help demo test sdks harnesses engines trainers bridge-table check fix bench bench-peers chaos clean \
	rl-smoke rl-text rl-text-rerendered rl-vision rl-results

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,fast]' --group dev
	@touch $@

demo: $(STAMP) ## a real agent and a real small model through the proxy, in a minute
	$(BIN)/turnstile demo

test: $(STAMP) ## the whole test suite
	$(BIN)/python -m pytest -n auto --dist loadfile

sdks: ## tests of the official SDKs with their newest versions, in an environment of their own
	$(PYTHON) -m venv --clear $(SDKS)
	$(SDKS)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(SDKS)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,fast]' --group dev
	$(SDKS)/bin/python -m pip install --quiet --upgrade openai anthropic google-genai
	$(SDKS)/bin/python -m pip list | grep -E '^(openai|anthropic|google-genai) '
	$(SDKS)/bin/python -m pytest $(SDK_TESTS)

harnesses: $(STAMP) ## real agent harnesses end to end, also with a failing engine (installs them once: 3.2 GB)
	$(BIN)/python tests/harnesses/install.py
	$(BIN)/python tests/harnesses/run.py --faults

engines: $(STAMP) ## real vLLM (CPU) and llama.cpp with one tiny model, compared to the last id (installs once: 4 GB)
	$(BIN)/python tests/engines_real/install.py
	TURNSTILE_ENGINES=real $(BIN)/python -m pytest --durations 10 tests/engines_contract tests/engines_real

trainers: $(STAMP) ## what real trainers make of our trajectories, each in an environment of its own (makes them once: 4.5 GB)
	$(BIN)/python tests/trainers/install.py
	$(BIN)/python -m pytest tests/trainers

bridge-table: $(STAMP) ## every shape of every model family against a whole render (fetches 48 families once)
	TURNSTILE_FAMILIES=all $(BIN)/python -m pytest tests/templates/test_bridge_table.py tests/templates/test_class_table.py tests/templates/test_checks_multi.py tests/cli/test_certify_process.py

check: $(STAMP) ## lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fix: $(STAMP) ## put right what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## overhead of Turnstile against a bare relay, of each dialect, of a spliced turn at every length, and of trajectory files
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/dialects.py
	$(BIN)/python benchmarks/bridge.py --certify
	$(BIN)/python benchmarks/trajectories.py

bench-peers: $(STAMP) ## the same, with other proxies beside it
	$(BIN)/python benchmarks/overhead.py --peers

chaos: $(STAMP) ## 200 kills of Turnstile under 50 agents, and everything checked after each (10 minutes; `make test` has a short form)
	$(BIN)/python tests/chaos/kills.py

rl-smoke: $(STAMP) ## three steps of each training run, all checks on (5 minutes)
	$(BIN)/python tests/trainers/install.py trl
	$(RL) loop.train text/smoke.toml --out $(RUNS)/smoke/text
	$(RL) loop.train vision/smoke.toml --out $(RUNS)/smoke/vision

rl-text: $(STAMP) ## a coding agent that learns, SEEDS one after the other, and its curves (40 minutes each on two cores)
	$(BIN)/python tests/trainers/install.py trl
	$(RL) loop.seeds text/text.toml --out $(RUNS)/text --seeds $(SEEDS)

rl-text-rerendered: $(STAMP) ## the same, trained on re-rendered and re-tokenized text: the wrong way, for comparison
	$(BIN)/python tests/trainers/install.py trl
	$(RL) loop.seeds text/text.toml --out $(RUNS)/text --seeds $(SEEDS) --history rerendered

rl-vision: $(STAMP) ## a computer-use agent that learns, SEEDS one after the other, and its curves (40 minutes each on two cores)
	$(BIN)/python tests/trainers/install.py trl
	$(RL) loop.seeds vision/vision.toml --out $(RUNS)/vision --seeds $(SEEDS)
	for seed in $(SEEDS); do ($(RL) vision.controls vision/vision.toml $(RUNS)/vision/exact-$$seed); done

rl-results: ## curves and tables of finished runs of both kinds into docs/
	$(RL) loop.plot $(CURDIR)/docs/images/rl-text.png --title 'Coding agent, held-out tasks' \
		--run exact $(SEEDS:%=$(RUNS)/text/exact-%) --run rerendered $(SEEDS:%=$(RUNS)/text/rerendered-%)
	$(RL) loop.results $(CURDIR)/docs/rl-runs.md text --picture images/rl-text.png \
		--run exact $(SEEDS:%=$(RUNS)/text/exact-%) --run rerendered $(SEEDS:%=$(RUNS)/text/rerendered-%)
	$(RL) loop.plot $(CURDIR)/docs/images/rl-vision.png --title 'Computer-use agent, held-out tasks' \
		--run exact $(SEEDS:%=$(RUNS)/vision/exact-%)
	$(RL) loop.results $(CURDIR)/docs/rl-runs.md vision --picture images/rl-vision.png \
		--run exact $(SEEDS:%=$(RUNS)/vision/exact-%)

clean: ## remove the environment and caches
	rm -rf $(VENV) $(SDKS) .pytest_cache .ruff_cache .hypothesis
