# A thin layer over CMakePresets.json: each target sets the machine up, then calls cmake or ctest.
.PHONY: help setup build test demo check bench asan tsan fuzz clean
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)

help:            ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:           ## install the missing Debian packages (as root)
	@tools/setup.sh packages.txt

build: setup     ## build the program: build/epipe
	@cmake --preset release $(CMAKE_ARGS) > /dev/null
	@cmake --build --preset release -j $(JOBS)

test: build      ## build everything and run every test
	@ctest --test-dir build --output-on-failure -j $(JOBS)

demo: build      ## print every codec's bits, error and speed on generated tensors
	@build/epipe bench codec --demo

clean:           ## remove everything that was built
	@rm -rf build
