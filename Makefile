# `make run` and `make test` do all the set-up on a fresh machine. They assume a C compiler, make
# and Rust, and say how to get what is missing. Nothing here calls sudo.

# The folder of rustup is not yet on the path of a shell that was open while it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Where the manual page, the completions and systemd's units go; bash, fish and man look there by themselves.
PREFIX ?= $(HOME)/.local
DATA = $(PREFIX)/share

.DEFAULT_GOAL := help
.PHONY: help run test test-root test-full test-sanitized lint format-check clippy features licences msrv install \
	install-manual install-units pictures setup \
	setup-lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r target what; \
		do printf '  make %-14s%s\n' "$$target" "$$what"; done

run: ## build, then advise on this machine's own files (make run ARGS=PATH for yours)
	@tools/setup build
	cargo build --locked -p breakeven-cli
	cargo run --quiet --locked -p breakeven-cli -- advise $(ARGS)

test: ## install what the tests need (when root), then run every test
	@tools/setup test
	cargo test --locked --workspace
	@$(MAKE) --no-print-directory test-root

test-root: ## only the tests that need root (loop mounts, namespaces)
	@tools/setup build
	@tools/test-root

test-full: ## every test with its long floors, then the sanitized ones
	BREAKEVEN_FULL=1 $(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-sanitized

# The sanitizer comes with the stable compiler, but is asked for by a flag that this one takes from
# RUSTC_BOOTSTRAP only. Into a folder of its own: everything is compiled for it. Libdeflate has a table of one
# name in two of its files, and tests ask for more memory than there is: neither is an error.
test-sanitized: TARGET = $(shell rustc -vV | sed -n 's/^host: //p')
test-sanitized: ## the arena's and the cache's tests under the address sanitizer
	@tools/setup build
	ASAN_OPTIONS=detect_odr_violation=0:allocator_may_return_null=1 \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address --cfg breakeven_sanitized" \
		cargo test --locked -p breakeven --lib --target $(TARGET) \
		--target-dir target/sanitized -- arena:: cache::

lint: format-check clippy licences ## formatting, clippy, licences and sources

format-check:
	@tools/setup lint
	cargo fmt --all --check

clippy:
	@tools/setup lint
	cargo clippy --workspace --all-targets --locked -- -D warnings

features: ## whether the library builds with its default features, for the cache alone (tested, too), and with all
	@tools/setup lint
	cargo clippy --locked -p breakeven -- -D warnings
	cargo clippy --locked -p breakeven --no-default-features --features cache -- -D warnings
	cargo clippy --locked -p breakeven --all-features -- -D warnings
	cargo test --locked -p breakeven --lib --no-default-features --features cache -- cache::

licences:
	@tools/setup build
	@tools/licences

# Into a folder of its own: the compilers' files are no use to each other.
msrv: OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv: ## whether everything builds with the oldest Rust that is promised (rustup fetches it)
	rustup toolchain install --no-self-update --profile minimal $(OLDEST)
	cargo +$(OLDEST) check --locked --workspace --target-dir target/msrv

pictures: ## the pictures of README and guide, from a recorded report
	@tools/setup build
	@mkdir -p target/pictures
	cargo run --quiet --locked -p breakeven-cli -- report \
		crates/breakeven-cli/src/report/example.json --output /dev/null --pictures target/pictures
	cp target/pictures/map.svg target/pictures/savings.svg docs/pictures/

install: ## install the `breakeven` command, its manual page and completions (PREFIX=~/.local)
	@tools/setup build
	@# The profile of run and test, so that nothing compiles twice.
	cargo install --locked --profile dev --path crates/breakeven-cli --features mount,s3
	@$(MAKE) --no-print-directory install-manual

install-manual:
	@tools/setup build
	@mkdir -p "$(DATA)/man/man1" "$(DATA)/bash-completion/completions" \
		"$(DATA)/zsh/site-functions" "$(DATA)/fish/vendor_completions.d"
	cargo run --quiet --locked -p breakeven-cli -- man >"$(DATA)/man/man1/breakeven.1"
	cargo run --quiet --locked -p breakeven-cli -- completions bash \
		>"$(DATA)/bash-completion/completions/breakeven"
	cargo run --quiet --locked -p breakeven-cli -- completions zsh \
		>"$(DATA)/zsh/site-functions/_breakeven"
	cargo run --quiet --locked -p breakeven-cli -- completions fish \
		>"$(DATA)/fish/vendor_completions.d/breakeven.fish"
	@$(MAKE) --no-print-directory install-units

# A unit names the program by its path: systemd does not look into homes.
install-units:
	@program=$$(command -v breakeven || echo breakeven); \
	for folder in "$(DATA)/systemd/user" "$(PREFIX)/lib/systemd/system"; do \
		mkdir -p "$$folder" && for unit in socket service; do \
			sed "s|^ExecStart=breakeven |ExecStart=$$program |" "crates/breakeven-cli/systemd/breakeven-disk@.$$unit" \
				>"$$folder/breakeven-disk@.$$unit" || exit 1; \
		done || exit 1; \
	done

setup: ## install what the tests need
	@tools/setup test

setup-lint: ## install what the lints need, cargo-deny included (under a minute)
	@tools/setup lint
	@tools/setup licences

clean: ## remove everything that was built
	cargo clean
