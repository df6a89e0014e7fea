# A thin layer over CMakePresets.json: each target sets the machine up, then calls cmake or ctest.
.PHONY: help setup build all test faults cpus demo check bench docs python python-2x wheel asan tsan fuzz soak deb clean
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
SOAK_FAULTS ?= 1000
SOAK_SECONDS ?= 0

help:            ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:           ## install the missing Debian packages (as root)
	@tools/setup.sh packages.txt

build: setup     ## build the program: build/epipe
	@mkdir -p build
	@cmake --preset release $(CMAKE_ARGS) > build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build --preset release -j $(JOBS) --target epipe

all: build       ## build everything: the program and its tests
	@cmake --build --preset release -j $(JOBS)

test: all        ## build everything and run every test
	@ctest --test-dir build --output-on-failure -j $(JOBS)

demo: build      ## train a CNN with several codecs, then measure every codec by itself
	@tools/demo.sh

bench: build     ## codecs against memcpy and LibTorch operators, then the kernels by themselves
	@build/epipe bench codec
	@cmake --build --preset release -j $(JOBS) --target kernels_bench
	@build/bench/kernels_bench

docs:            ## the API pages of the library, from epipe.h: build/docs/html/namespaceepipe.html
	@tools/setup.sh packages-docs.txt
	@command -v doxygen > /dev/null || { echo 'make docs: doxygen is missing; install it (Debian: apt-get install doxygen)'; exit 1; }
	@mkdir -p build
	@doxygen docs/Doxyfile
	@echo build/docs/html/namespaceepipe.html

python: build    ## import epipe, for Debian's python3: PYTHONPATH=build/python
	@cmake --build --preset release -j $(JOBS) --target python
	@PYTHONPATH=build/python /usr/bin/python3 -c 'import epipe, torch; print(f"epipe {epipe.__version__} for PyTorch {torch.__version__}: PYTHONPATH=build/python")'

python-2x:       ## everything and its tests for PyTorch 2.x of PyPI, with Hugging Face as peers, in a virtual environment: build/python-2x
	@JOBS=$(JOBS) tools/python_2x.sh

wheel: setup     ## sdist and wheel of import epipe, each installed and used outside the tree: build/wheel/dist
	@JOBS=$(JOBS) tools/check_wheel.sh

faults: all      ## the fault suites at length: links cut and processes killed, over and over
	@EPIPE_LONG_TESTS=1 EPIPE_PROGRAM=$(CURDIR)/build/epipe build/tests/train_tests --only=train/coordinator_fault --gtest_brief=1
	@EPIPE_LONG_TESTS=1 EPIPE_PROGRAM=$(CURDIR)/build/epipe build/tests/serve_tests --only=serve/fault --gtest_brief=1

cpus: all        ## the tests on other CPUs: emulated ones, and this one with its libraries held at each level
	@tools/setup.sh packages-check.txt
	@JOBS=$(JOBS) tools/check_cpus.sh

check: all       ## format, layers, links, warnings as errors, clang-tidy, sanitizers, tests, other CPUs, the fault suites at length
	@tools/setup.sh packages-check.txt
	@JOBS=$(JOBS) tools/check.sh
	@$(MAKE) --no-print-directory test cpus faults asan tsan

# Instrumented builds of the same tests, leaks included. With one OpenMP thread only epipe's own threads run, and those are
# instrumented; libgomp, LibTorch and OpenBLAS are not. Neither are gRPC and gloo: what has a frame of theirs in its stack is suppressed
# (tools/tsan.supp), nothing else. A finding exits with 99 (ThreadSanitizer: 66), because tests of the program expect its own 1 and 2.
asan tsan: setup ## the tests under AddressSanitizer and UBSan, or ThreadSanitizer
	@cmake --preset $@ > /dev/null
	@cmake --build --preset $@ -j $(JOBS)
	@ASAN_OPTIONS=exitcode=99 LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp UBSAN_OPTIONS=exitcode=99:print_stacktrace=1 OMP_NUM_THREADS=1 \
	  TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=$(CURDIR)/tools/tsan.supp \
	  ctest --test-dir build/$@ --output-on-failure -j $(JOBS) -LE timing

fuzz: setup      ## libFuzzer on every target for FUZZ_SECONDS (60) each, then what the corpora reach; FUZZ_TARGETS chooses
	@tools/setup.sh packages-check.txt
	@cmake --preset fuzz > /dev/null
	@cmake --build --preset fuzz -j $(JOBS) --target fuzzers
	@tools/fuzz.py run --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)
	@tools/fuzz.py coverage $(FUZZ_TARGETS)

soak: build      ## SOAK_FAULTS (1000) faults under training, for at most SOAK_SECONDS (0: no limit); SOAK_SEED repeats a sequence
	@tools/soak/soak.py --program build/epipe --faults $(SOAK_FAULTS) --seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

deb: build       ## Debian packages of what was built: build/deb/*.deb
	@tools/setup.sh packages-deb.txt
	@JOBS=$(JOBS) tools/make_deb.sh

clean:           ## remove everything that was built
	@rm -rf build
