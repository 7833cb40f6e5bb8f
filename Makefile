# The same targets people and CI use. Everything is made inside this folder.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
RUST := $(shell find rust/*/Cargo.toml rust/core/src rust/python/src -name '*.rs' -o -name Cargo.toml 2>/dev/null)
PACKAGE := $(shell find python -name '*.py' -o -name '*.pyi' 2>/dev/null)

.PHONY: dev demo test test-rust test-python lint bench bench-peer bench-capture fuzz soak clean

dev: $(BUILT)  ## a virtual environment with the release wheel and everything to test it

$(BUILT): pyproject.toml Cargo.toml Cargo.lock $(RUST) $(PACKAGE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.9,<2'
	rm -rf dist
	$(BIN)/maturin build --release --locked --out dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[test,lint]"
	touch $@

demo: $(BUILT)  ## enrich the packaged sample, then everything live on this machine
	$(BIN)/python -m rollfold.sample
	$(BIN)/python -m demo.run

test: test-rust test-python  ## the whole suite

test-rust: $(BUILT)
	if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --locked -p rollfold-core --no-fail-fast && cargo test --locked --doc -p rollfold-core; \
	else \
	  cargo test --locked -p rollfold-core --no-fail-fast; \
	fi

test-python: $(BUILT)
	$(BIN)/python -m pytest

lint: $(BUILT)  ## formatting, lints and types
	$(BIN)/ruff check python tests benches demo
	$(BIN)/ruff format --check python tests benches demo
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest rollfold._core
	cargo fmt --all --check
	cargo fmt --manifest-path rust/fuzz/Cargo.toml --check
	PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy --locked --workspace --all-targets -- -D warnings

bench: $(BUILT)  ## our own figures
	$(BIN)/python benches/run.py

bench-peer: $(BUILT)  ## side by side with nemo-gym 0.7.0, in an environment of its own
	$(BIN)/python benches/peer.py

bench-capture: $(BUILT)  ## what the capture middleware costs a server
	$(BIN)/python benches/capture_cost.py

FUZZ_TARGETS ?= $(patsubst %.rs,%,$(notdir $(wildcard rust/fuzz/fuzz_targets/*.rs)))
FUZZ_SECONDS ?= 60

# cargo-fuzz asks for flags that only a nightly compiler takes unasked.
fuzz:  ## each of FUZZ_TARGETS (all) for FUZZ_SECONDS (60); needs cargo-fuzz
	for target in $(FUZZ_TARGETS); do \
	  mkdir -p rust/fuzz/corpus/$$target && \
	  RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir rust/fuzz $$target \
	    rust/fuzz/corpus/$$target rust/fuzz/seeds/$$target -- \
	    -dict=rust/fuzz/json.dict -max_total_time=$(FUZZ_SECONDS) -timeout=30 || exit 1; \
	done

soak: $(BUILT)  ## the long runs
	$(BIN)/python -m pytest -m soak --timeout 3600

clean:
	rm -rf $(VENV) dist target
