# make demo    judge the example pairs and write a report: the first result
# make check   lint and tests
# make bench   measure on this machine
# make house   measure the house judge on public data sets: make house DATA=FOLDER

VENV := .venv
BIN := $(VENV)/bin
# Without setuptools' warning that folders here have names as packages do.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
# uv takes a fraction of pip's time, but reads none of its settings: pip installs where it has an index of the user's own,
# and where uv does not get through.
UV := $(BIN)/python -m uv pip install --quiet --python $(BIN)/python -c constraints.txt
OWN_INDEX := $(BIN)/python -m pip config list | grep -q '\.index-url'
INSTALL = @! $(OWN_INDEX) && $(UV) $(1) 2>/dev/null || $(PIP) $(1)
CANDIDATES := $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11
DEMO := out/demo

.PHONY: demo check lint test bench house env clean

demo: $(VENV)/.core
	@mkdir -p $(DEMO)
	$(BIN)/adjudge judge examples/pairs.jsonl -o $(DEMO)/verdicts.jsonl --report $(DEMO)/report.html --resume

check: lint test

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p adjudge
	$(BIN)/lint-imports

# Files side by side, a thread of torch each; with ARGS, what they say and nothing else.
SIDE_BY_SIDE := -n auto --dist loadfile --no-loadscope-reorder

# What one process of the tests has compiled is not compiled again by the next.
test: $(VENV)/.dev
	env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(or $(ARGS),$(SIDE_BY_SIDE))

bench: $(VENV)/.core
	$(BIN)/adjudge bench $(ARGS)

# What docs/house.md and card say of the house judge, where FOLDER holds the files named below.
TABLE := out/house-table
AGREES := $(BIN)/adjudge bench agreement --judge pointwise --resume
BARE := $(AGREES) --model smollm2-135m --baselines
WORSE = $(BIN)/adjudge bench disturbances $(DATA)/storyer/ratings.jsonl
DAMAGE := order,drift,other prompt,foreign,contradiction,people,middle,dropped,passages dropped,passages repeated,repeat,cut,\
forced ending,transfer,summary,explained,plain,bland,babble,misplaced,shuffled words,dropped words,repeated words
CLEAN := order,drift,other prompt,foreign,contradiction,people,middle,passages dropped,forced ending
# The better story of every pair, a line each.
BETTER := import json, sys; \
[print(json.dumps({"prompt": row["prompt"], "story": row["story_" + row["expected"]]})) for row in map(json.loads, sys.stdin)]

house: $(VENV)/.core
	@test -n "$(DATA)" || { echo "say where the data sets are: make house DATA=FOLDER" >&2; exit 1; }
	@mkdir -p $(TABLE)
	$(AGREES) $(DATA)/openmeva_roc/stories.jsonl --aspects coherence -o $(TABLE)/openmeva
	$(AGREES) $(DATA)/openmeva_roc/stories.jsonl --aspects coherence --limit 80 -o $(TABLE)/openmeva-80
	$(AGREES) $(DATA)/openmeva_roc/stories.jsonl -o $(TABLE)/openmeva-six
	$(AGREES) $(DATA)/hanna/stories.jsonl -o $(TABLE)/hanna
	$(AGREES) $(DATA)/storyer/ratings.jsonl -o $(TABLE)/storyer
	$(AGREES) $(DATA)/autoj_pairs/pairs.jsonl --limit 160 -o $(TABLE)/autoj
	$(BARE) $(DATA)/openmeva_roc/stories.jsonl --aspects coherence -o $(TABLE)/openmeva-bare
	$(BARE) $(DATA)/hanna/stories.jsonl -o $(TABLE)/hanna-bare
	$(BARE) $(DATA)/storyer/ratings.jsonl -o $(TABLE)/storyer-bare
	$(BARE) $(DATA)/autoj_pairs/pairs.jsonl --limit 160 -o $(TABLE)/autoj-bare
	$(WORSE) --limit 12 -o $(TABLE)/worse.csv
	$(WORSE) --kinds "$(DAMAGE)" --seed 7 -o $(TABLE)/damage.csv
	cat examples/pairs.jsonl examples/pairs-unseen.jsonl | $(BIN)/python -c '$(BETTER)' > $(TABLE)/clean.jsonl
	$(BIN)/adjudge bench disturbances $(TABLE)/clean.jsonl --kinds "$(CLEAN)" --seed 7 -o $(TABLE)/clean.csv
	$(BIN)/adjudge judge examples/pairs.jsonl -o $(TABLE)/pairs.jsonl --resume
	$(BIN)/adjudge judge examples/pairs.jsonl --judge pairwise -o $(TABLE)/pairwise.jsonl --resume
	$(BIN)/adjudge judge examples/pairs-unseen.jsonl -o $(TABLE)/unseen.jsonl --resume

env: $(VENV)/.dev

clean:
	rm -rf out build dist adjudge.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

# A new pip, for that which comes with Python may be old and slower.
$(BIN)/pip:
	@for python in $(CANDIDATES); do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "creating $(VENV) with $$python"; exec "$$python" -m venv --upgrade-deps $(VENV); \
	    fi; \
	done; \
	echo "adjudge needs Python 3.11 or newer: install one, or run make PYTHON=/path/to/python3.11 ..." >&2; exit 1

# What is installed, by all processors, where pip would take one, but for tests and for models that hardly anyone opens;
# some files are for other versions of Python.
UNCOMPILED := /(tests/|transformers/models/(?!auto|llama))
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '$(UNCOMPILED)' $(VENV)/lib >/dev/null 2>&1 || true

# torch first and alone: resolved together with the rest, pip may choose a build that brings gigabytes of CUDA.
$(VENV)/.torch: constraints.txt | $(BIN)/pip
	@echo "installing torch (once)"
	@$(PIP) torch
	@$(PIP) uv || true
	@touch $@

$(VENV)/.core: setup.py pyproject.toml $(VENV)/.torch
	@echo "installing adjudge"
	$(call INSTALL,-e .)
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: setup.py pyproject.toml $(VENV)/.torch
	@echo "installing adjudge and the tools of its checks"
	$(call INSTALL,-e '.[dev]')
	@$(COMPILE)
	@touch $(VENV)/.core $@
