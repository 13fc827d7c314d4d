# Thin verbs over CMake and the scripts. `make help` lists them.

BUILD ?= build
CONFIGURE ?=

.DEFAULT_GOAL := build
.PHONY: build demo check bench asan tsan fuzz fmt setup-hooks install uninstall deb clean help

build: ## build the library and the program, build/weft
	@scripts/build $(BUILD) all $(CONFIGURE)

demo: ## train a ResNet-18 on real images and draw its curves into demo/
	@scripts/setup
	@scripts/build $(BUILD) all $(CONFIGURE)
	@scripts/demo $(BUILD)

check: ## build everything and run all tests
	@scripts/setup --tests
	@scripts/check $(BUILD) $(CONFIGURE)

asan: ## run the tests under the address and undefined behaviour sanitizers
	@scripts/check build-asan "-DWEFT_SANITIZE=address;undefined"

tsan: ## run the tests under the thread sanitizer
	@scripts/check build-tsan -DWEFT_SANITIZE=thread

bench: build ## measure how fast this machine trains
	@scripts/bench $(BUILD)

fuzz: ## search for inputs that break a parser, one minute each (FUZZ_SECONDS=60)
	@scripts/setup --fuzz
	@scripts/fuzz

fmt: ## format all C files with clang-format 14
	@scripts/format

setup-hooks: ## let git check commit messages (scripts/check-commits)
	@scripts/setup-hooks

install: build ## install to PREFIX (default /usr/local)
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

uninstall: ## remove the files of the last `make install`
	@scripts/uninstall $(BUILD)

deb: build ## build a Debian package
	@scripts/setup --deb
	@cpack -G DEB --config $(BUILD)/CPackConfig.cmake -B $(BUILD)/deb

clean: ## remove all build folders
	@rm -rf build build-asan build-tsan build-fuzz

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13
