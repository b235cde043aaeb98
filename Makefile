# penstock: every command a contributor needs. `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The same order of sets in every run: tests give everyone the same verdict.
export PYTHONHASHSEED := 0
# Some hundred processes load the same modules: what one has compiled is there for the others, whatever was said outside.
export PYTHONDONTWRITEBYTECODE :=
STAMP  := $(VENV)/.installed

.PHONY: venv demo test test-fast fuzz coverage lint types bench bench-peers clean

venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "penstock needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version). Write: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/penstock doctor --quiet
	@$(BIN)/penstock demo

# First the tests without Spark, a process on each core. Then two lanes of about the same length side by side: most tests
# that share one session, and those that start drivers of their own, followed by random flows and files. More at once
# take longer. The driver's memory is measured first, in a process that has done nothing else.
FLOWS := join_draws lookup_draws file_draws files stream_static
DRIVERS := tests/spark/test_file_memory.py tests/spark/drivers $(FLOWS:%=tests/spark/test_%.py)
test: $(STAMP)
	$(BIN)/penstock doctor --quiet
	@$(BIN)/python -m tests.spark.jvm > .drivers.log 2>&1 & archive=$$!; \
	$(MAKE) --no-print-directory lint types; checked=$$?; \
	wait $$archive || cat .drivers.log; exit $$checked
	@$(BIN)/pytest -n 2 --dist=worksteal -m "not spark and not deep" --durations=15; local=$$?; \
	echo "What tests with drivers of their own print comes last."; \
	$(BIN)/pytest $(DRIVERS) --durations=15 > .drivers.log 2>&1 & drivers=$$!; \
	$(BIN)/pytest tests/spark $(DRIVERS:%=--ignore=%) --durations=15; spark=$$?; \
	wait $$drivers; drivers=$$?; cat .drivers.log; \
	exit $$((local | spark | drivers))

# Tests take half as long again while it is noted which lines they run.
coverage: $(STAMP)
	$(BIN)/coverage erase
	$(BIN)/pytest -n 2 --dist=worksteal -m "not spark and not deep" --cov --cov-report=
	$(BIN)/pytest -m "spark and not deep" --cov --cov-append --cov-report=
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report --skip-covered

test-fast: $(STAMP)
	$(BIN)/pytest -n 2 --dist=worksteal -m "not spark and not slow and not deep" --hypothesis-profile=fast

# Draws anew each time; make fuzz SEED=… repeats what a failure printed.
SECONDS ?= 1200
fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/penstock bench window-join

# Each peer has an environment of its own, as it pins other versions of the libraries penstock uses. One that cannot be
# installed leaves none behind, and benchmarks leave it out. make bench-peers PEERS=bytewax installs this one only.
PEERS ?= flink pathway bytewax
ENVIRONMENT_flink := .venv-peers
ENVIRONMENT_pathway := .venv-pathway
ENVIRONMENT_bytewax := .venv-bytewax
bench-peers: $(PEERS:%=bench-peer-%)
	@for peer in $(foreach peer,$(PEERS),$(peer)=$(ENVIRONMENT_$(peer))); do \
	  test -x $${peer#*=}/bin/python && echo "$${peer%=*} is installed." \
	    || echo "$${peer%=*} could not be installed for $$($(PYTHON) --version): benchmarks leave it out."; done

bench-peer-%: $(STAMP)
	$(PYTHON) -m venv $(ENVIRONMENT_$*)
	$(ENVIRONMENT_$*)/bin/pip install --quiet --disable-pip-version-check -r benchmarks/peers/$*.txt \
	  || rm -rf $(ENVIRONMENT_$*)

clean:
	rm -rf $(VENV) .venv-peers .venv-pathway .venv-bytewax .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .drivers.log htmlcov
