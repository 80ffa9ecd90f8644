# `make demo` and `make test` do all their own set-up; see scripts/setup.sh.
.DEFAULT_GOAL := help
.PHONY: help build test test-jax fuzz mutants soak demo first-minutes wheel bench bench-cpu bench-models bench-dist audit fmt bless clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: TESSERA_PYTHON=<interpreter to make .venv with>, TESSERA_MIN_FREE_MB=<disk limit>"

build: ## Set everything up and build the extension module
	@scripts/build.sh

test: ## Set up, then run every check and test
	@scripts/test.sh

test-jax: ## Install JAX into an environment of its own and run the tests that need it
	@scripts/test-jax.sh

fuzz: ## All random testing: MINUTES=10 of it, from SEED= (the day)
	@scripts/fuzz.sh $(or $(MINUTES),10) $(SEED)

mutants: ## Mutation testing: COUNT=200 faults of each group from SEED=1; MODULES="random optim", CRATES="autodiff"
	@scripts/mutants.sh

soak: ## MINUTES=10 of all features concurrently, from SEED=; memory, descriptors and threads must stay flat
	@scripts/soak.sh $(or $(MINUTES),10) $(SEED)

demo: ## Set up, build, then run examples/demo.py and examples/mesh_tour.py
	@scripts/demo.sh

first-minutes: ## Time make demo and make test in a clean clone, write the table of README.md; FIRST="--only demo"
	@python3 scripts/first_minutes.py $(FIRST)

wheel: ## Build a release wheel into dist/, run it in fresh environments of all Pythons here
	@scripts/wheel.sh

bench: ## Set up, build as released, then run bench/run.py
	@scripts/bench.sh

bench-cpu: ## Compare the CPU backend with MKL, NumPy and XLA; BENCH="--quick" passes options
	@scripts/bench-peers.sh bench.cpu $(BENCH)

bench-models: ## Compare whole functions with XLA on one core; BENCH="--rounds 9" passes options
	@scripts/bench-peers.sh bench.models_cpu $(BENCH)

bench-dist: ## Compare resharding and index launches in one process with NumPy and JAX; BENCH="--rounds 9" passes options
	@scripts/bench-peers.sh bench.dist_cpu $(BENCH)

audit: ## Check dependencies: known vulnerabilities, licenses, sources; needs the network
	@scripts/audit.sh

fmt: ## Format the Rust sources
	@cargo fmt --all

bless: ## Rewrite the expectations in tests and documentation from what the code does now
	@TESSERA_BLESS=1 cargo test --workspace
	@scripts/build-extension.sh
	@.venv/bin/python -m tessera.tools.stubs
	@TESSERA_BLESS=1 .venv/bin/python -m pytest -q python/tests/test_docs.py python/tests/test_error_pages.py \
		python/tests/test_ledger.py python/tests/test_graph_ops.py::test_every_row_is_in_the_page \
		python/tests/test_xp_reference.py python/tests/test_reference_names.py

clean: ## Remove everything that was built or installed here
	rm -rf target build dist .venv .pytest_cache python/tessera/*.so
