# make setup | demo | check | test; `make help` says what else there is.
# PYTHON=/path/to/python3 chooses another interpreter than the distribution's.
VENV   := .venv
BIN    := $(VENV)/bin
FUZZ_SECONDS ?= 60
# More than cores: half of the time of tests is waiting.
TEST_PROCESSES ?= 3

.PHONY: default setup demo check test acceptance-agents acceptance-runner bench bench-chains bench-runners quota-exactness budget-exactness budget-faults chain-soak bench-gateway gateway-faults runner-faults rotation soak fuzz api-fuzz corpus docs proto fix lock clean help

default: check test

help:      ## what each target does
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(VENV)/.installed  ## make .venv with the pointsman script, and Debian packages when root

$(VENV)/.installed: $(wildcard requirements/*.txt requirements/npm/*) pyproject.toml scripts/setup.sh
	@PYTHON='$(PYTHON)' scripts/setup.sh

demo: setup  ## a real model's answer through the sandbox's only door
	@$(BIN)/python examples/demo.py

check: setup  ## ruff, mypy, import-linter, shape limits, docs tests
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_shape.py
	$(BIN)/python scripts/generate_reference.py --check
	scripts/generate_rpc.sh --check
	$(BIN)/pytest tests/docs

test: check  ## check, then unit, component, conformance and e2e tests
	@scripts/test.sh $(BIN)/pytest $(TEST_PROCESSES)

acceptance-agents: setup  ## real coding agents in the sandbox; installs them first
	$(BIN)/python -m tests.acceptance.run

acceptance-runner: setup  ## runners' models through several processes on real parts, and what breaks (root, 3 min)
	$(BIN)/python -m tests.acceptance.runner

bench: setup  ## ratios against nginx (PEERS=1: more peers), and what a gateway's stages cost
	$(BIN)/python bench/run.py
	$(BIN)/python bench/stages.py
	$(BIN)/python bench/stream_delay.py

bench-chains: setup  ## CPU time of chains beside a direct route, with quotas on SQLite and PostgreSQL
	$(BIN)/python bench/chains.py

bench-runners: setup  ## what a runner adds to each event, on both buses, and what one API process carries
	$(BIN)/python -m bench.runner_lines
	$(BIN)/python -m bench.runner_load

quota-exactness: setup  ## 100 runs of 10 N requests on N places, one gateway and two, SQLite and PostgreSQL
	$(BIN)/python bench/quota_exactness.py

budget-exactness: setup  ## 200 requests at once on room for 10, in every unit and scope, two gateways on SQLite and PostgreSQL
	$(BIN)/python bench/budget_exactness.py

budget-faults: setup  ## budgets and usage rows beside their providers' books, after faults, clients that leave and kills
	$(BIN)/python bench/budget_faults.py

chain-soak: setup  ## 200 requests at once through chains whose providers fail: no answer mixed, every count equal
	$(BIN)/python bench/chain_soak.py

bench-gateway: setup  ## bundle fetches, and a thousand sandboxes that poll, beside a bare gRPC server
	$(BIN)/python bench/control_plane.py

gateway-faults: setup  ## gateways, their databases and files broken one at a time under load: nothing may be lost
	$(BIN)/python bench/gateway_faults.py

runner-faults: setup  ## runners, their gateway's processes, broker, ways and models broken one at a time: nobody may be deceived
	$(BIN)/python bench/runner_faults.py

rotation: setup  ## 100 rotations of a provider's key and model under load: no request may fail
	$(BIN)/python bench/rotation.py

soak: setup  ## 100,000 randomised exchanges with nonces; MINUTES=30: the fault matrix, for as long
	$(BIN)/python $(if $(MINUTES),bench/fault_soak.py --minutes $(MINUTES),bench/soak.py)

fuzz: $(VENV)/.fuzz  ## every target under atheris (FUZZ_SECONDS=60 each), then Hypothesis, deep profile
	$(BIN)/python -m tests.fuzz.campaign --seconds $(FUZZ_SECONDS)
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest tests/unit/wire --timeout=0

$(VENV)/.fuzz: $(VENV)/.installed requirements/fuzz.txt
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	@touch $@

api-fuzz: $(VENV)/api-fuzz/.installed  ## Schemathesis over the REST API of a real gateway (FUZZ_SECONDS=60, as the admin and with a key)
	$(BIN)/python -m tests.fuzz.api --schemathesis $(VENV)/api-fuzz/bin/schemathesis --seconds $(FUZZ_SECONDS)

# An environment of its own: it needs other versions of what the tests have.
$(VENV)/api-fuzz/.installed: $(VENV)/.installed requirements/api-fuzz.txt
	@$(BIN)/python -m venv $(VENV)/api-fuzz
	@$(VENV)/api-fuzz/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/api-fuzz.txt
	@touch $@

corpus: setup  ## raw requests with others' verdicts through a real proxy (CORPUS=FILE)
	@test -n "$(CORPUS)" || { echo 'corpus: which? next: make corpus CORPUS=FILE.jsonl'; exit 2; }
	@$(BIN)/python -m tests.corpus "$(CORPUS)"

docs: setup  ## write the generated pages of docs/reference
	$(BIN)/python scripts/generate_reference.py

proto: setup  ## write src/pointsman/rpc/gen from proto/
	scripts/generate_rpc.sh

fix: setup  ## format and mend what ruff can
	$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .

lock: setup  ## refresh the hash-locked requirements
	scripts/lock.sh

clean:     ## remove what make made
	rm -rf $(VENV) bench/build bench/work
