# SPDX-License-Identifier: MIT
# The front door. CMake and Ninja do the work underneath; every target here is
# one line a person can also type.

BUILD      ?= build
BUILD_TYPE ?= RelWithDebInfo
PREFIX     ?= /usr/local
FUZZ_SECONDS ?= 60
JOBS       ?= $(shell nproc)

cmake = cmake -G Ninja -S . -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) \
        -DCMAKE_INSTALL_PREFIX=$(PREFIX)
suite = ctest --output-on-failure -j$(JOBS) --test-dir

.PHONY: all setup test demo bench asan tsan fuzz format pictures install \
        clean help

all: setup ## build the library and the `sluice` program into $(BUILD)/
	@$(cmake) -B $(BUILD) >/dev/null && ninja -C $(BUILD)

setup: ## install missing Debian packages (as root), or print the line to run
	@tools/setup

test: setup ## every test, with gcc, then clang with ASan and UBSan, then TSan
	@$(cmake) -B $(BUILD) -DSLUICE_WERROR=ON >/dev/null
	@ninja -C $(BUILD) --quiet && $(suite) $(BUILD)
	@$(MAKE) --no-print-directory asan tsan

demo: all ## train a small GPT-2 on this source, four ranks; about a minute
	@tools/demo $(BUILD)/sluice

bench: all ## time schedules, stages, steps, beside PyTorch if importable; pages
	@bench/schedules $(BUILD)/sluice
	@echo && bench/stages $(BUILD)/sluice
	@echo && bench/steps $(BUILD)/sluice
	@[ ! -x /usr/bin/chromium ] || { echo && bench/pages $(BUILD); }

asan: setup ## the suite under AddressSanitizer and UndefinedBehaviorSanitizer
	@CC=clang $(cmake) -B $(BUILD)-asan -DSLUICE_WERROR=ON \
	    -DSLUICE_SANITIZE=address,undefined >/dev/null
	@ninja -C $(BUILD)-asan --quiet && $(suite) $(BUILD)-asan

tsan: setup ## what runs in threads, under ThreadSanitizer
	@CC=clang $(cmake) -B $(BUILD)-tsan -DSLUICE_WERROR=ON \
	    -DSLUICE_SANITIZE=thread >/dev/null
	@ninja -C $(BUILD)-tsan --quiet test_tensor_threads test_comm_threads \
	    test_pipeline_threads test_pipeline_failures_threads sluice && \
	    $(suite) $(BUILD)-tsan -R threads

fuzz: setup ## run every fuzzer for FUZZ_SECONDS (60) with ASan and UBSan
	@CC=clang $(cmake) -B $(BUILD)-fuzz -DSLUICE_FUZZ=ON \
	    -DSLUICE_SANITIZE=address,undefined >/dev/null
	@ninja -C $(BUILD)-fuzz --quiet && \
	    tools/fuzz $(BUILD)-fuzz $(FUZZ_SECONDS)

format: setup ## apply .clang-format to every C file and script of the page
	@git ls-files '*.c' '*.h' '*.js' | xargs clang-format -i

pictures: setup ## make the pictures of the manual anew, with a browser
	@tools/setup browser
	@$(cmake) -B $(BUILD) >/dev/null && ninja -C $(BUILD) --quiet all pictures
	@tools/pictures $(BUILD)

install: all ## install headers, libraries, pkg-config, CMake package, `sluice`
	@cmake --install $(BUILD)

clean: ## remove every build folder
	@rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
