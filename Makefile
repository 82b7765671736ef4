# pgseal: 'make help' lists the targets.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo

bindir = $(DESTDIR)$(PREFIX)/bin
libdir = $(DESTDIR)$(PREFIX)/lib/pgseal
mandir = $(DESTDIR)$(PREFIX)/share/man/man1
bashdir = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
docdir = $(DESTDIR)$(PREFIX)/share/doc/pgseal

SHELL = /bin/bash
.SHELLFLAGS = -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
# Even with -j, the parts of a target run one after another: servers and compilers share few cores.
.NOTPARALLEL:

# Variables:
#   PG_CONFIG=PATH (one or more)      the PostgreSQL to use; default: all that the distribution
#                                     installed
#   EXTENSIONS="postgis plr"          some extensions, for test-extensions
#   MAJOR=17                          the major version, for image and its tests
#   MAJORS="15 18"                    some major versions, for test-matrix and test-upstream
#   RESUME=yes                        only what has no result yet or failed
#   IMAGES=1000                       how many disks each test of test-power judges
#   POWER="gcm standby"               some tests, for test-power
#   SUITE=aes-256-xts                 the suite, for the tests of test-power that name none
#   PAGES="docs/backup.md"            some pages, for test-docs
#   CHECKS="upgrade,crash"            some checks, for test-matrix
#   RELEASE_KEY=KEY                   the key of GnuPG that signs, for release
#   ACTIONS="build unit"              some parts of test-aarch64 or test-musl (scripts/aarch64.sh
#                                     --help, musl.sh --help)
#   HOURS=8 SEED=1 EVENTS=crash       how long, in which order and which, for soak
#   ARCH=arm64                        the architecture, for deb and test-deb
#   AUDITABLE=yes                     programs that list the crates in them, as in packages, for
#                                     build
#   FIPS=1                            over AWS-LC's FIPS module (docs/fips.md), for build, test and
#                                     install
#   SUITES="recovery,src/bin/pg_rewind"   some of PostgreSQL's own suites, for test-upstream
export PG_CONFIG DESTDIR CARGO FIPS RELEASE_KEY
# Where scripts/setup.sh puts what cargo has no package for: cargo-auditable.
export PATH := $(CURDIR)/build/tools/bin:$(PATH)

# Of a FIPS build: the features, for the calls of cargo below. The lab measures the ordinary build.
FIPS_FEATURES = $(if $(FIPS),-p pgseal-crypto --features pgseal-crypto/fips)
LAB = $(if $(FIPS),,pgseal-lab)
# Crates that the tests of the workspace leave out: AWS's SDK would be compiled in another profile
# for them.
UNTESTED = $(AWS_KMS) $(if $(FIPS),pgseal-column pgseal-lab)

UPSTREAM = tests/upstream
# The programs that talk to key stores. Compiling the SDK of AWS takes as long as the rest of a
# build, and a demonstration does not need it, so that plugin has a target of its own.
AWS_KMS = pgseal-provider-aws-kms
PLUGINS = pgseal-provider-kmip pgseal-provider-pkcs11 pgseal-provider-tpm2 pgseal-provider-vault

# What is installed: scripts/aarch64.sh packages what was built for another architecture.
BUILT = target$(PGSEAL_CROSS:%=/%)

# Licences of the crates within the programs, and the bill of materials.
NOTICES = THIRD-PARTY-NOTICES.txt pgseal.cdx.json

# $(call step,WHAT,SECONDS,COMMAND): says what comes and how long it takes (on two idle cores, from
# scratch), runs COMMAND, and says how long it took.
step = @scripts/step.sh "$(1)" $(2) $(3)
# On a terminal, cargo shows which crates it builds. For packages each program lists the crates in
# it.
BUILD = $(CARGO) $(if $(AUDITABLE),auditable )build $(shell [ -t 2 ] || echo --quiet) --release --locked

.PHONY: help
help: ## this list
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
	    awk -F '\t' '{ printf "  make %-18s %s\n", $$1, $$2 }'
	@echo "Variables: PREFIX=$(PREFIX) DESTDIR= PG_CONFIG=(paths of pg_config) MAJORS=(of test-matrix)"

# ---- build ----

.PHONY: setup
setup: ## install what the build needs and the machine lacks
	@scripts/setup.sh build $(if $(FIPS),fips)

.PHONY: build
build: ## programs, library, guard module and extension for each PostgreSQL here
	@# In one command cargo would give the library the features that only the programs want. All programs are
	@# built together, so that each crate that several use is built once.
	$(call step,the library and AWS-LC (C),50,$(BUILD) -p pgseal-preload $(FIPS_FEATURES))
	$(call step,programs: pgseal$(LAB:%= and %) and the plugins,110,$(BUILD) -p pgseal-cli $(LAB:%=-p %) $(PLUGINS:%=-p %) $(FIPS_FEATURES))
	$(call step,the library of sealed columns,10,$(BUILD) -p pgseal-column $(FIPS_FEATURES))
	$(call step,guard modules,3,scripts/guard.sh build)
	$(call step,extensions,8,scripts/extension.sh build)
	$(call step,notices of the linked crates,3,scripts/notices.sh write)
	@echo "built target/release/pgseal, $(LAB:%=target/release/%,) target/release/libpgseal.so," \
	    "$(PLUGINS:%=target/release/%)"

# What a sealed cluster needs, and nothing else.
.PHONY: build-demo
build-demo:
	$(call step,the library and AWS-LC (C),50,$(BUILD) -p pgseal-preload)
	$(call step,the program pgseal,70,$(BUILD) -p pgseal-cli)
	$(call step,guard modules,3,scripts/guard.sh build)

.PHONY: build-aws-kms
build-aws-kms: ## the plugin for AWS KMS, which 'make build' leaves out: the SDK of AWS takes long to compile
	$(call step,the plugin for AWS KMS,110,$(BUILD) -p $(AWS_KMS) $(FIPS_FEATURES))
	@echo "built target/release/$(AWS_KMS)"

.PHONY: install
install: ## install what 'make build' built, and the plugin of 'make build-aws-kms' if that built it
	@test -x $(BUILT)/release/pgseal $(LAB:%=-a -x $(BUILT)/release/%) -a -e $(BUILT)/release/libpgseal.so \
	    $(PLUGINS:%=-a -x $(BUILT)/release/%) $(NOTICES:%=-a -e $(BUILT)/notices/%) || \
	    { echo "nothing to install: run 'make build' first" >&2; exit 1; }
	@scripts/install-file.sh 0755 $(BUILT)/release/pgseal $(bindir)/pgseal
	@for lab in $(LAB); do scripts/install-file.sh 0755 $(BUILT)/release/$$lab $(bindir)/$$lab; done
	@scripts/install-file.sh 0755 $(BUILT)/release/libpgseal.so $(libdir)/libpgseal.so
	@for plugin in $(PLUGINS); do \
	    scripts/install-file.sh 0755 $(BUILT)/release/$$plugin $(libdir)/providers/$$plugin; done
	@if [ -x $(BUILT)/release/$(AWS_KMS) ]; then \
	    scripts/install-file.sh 0755 $(BUILT)/release/$(AWS_KMS) $(libdir)/providers/$(AWS_KMS); fi
	@scripts/guard.sh install
	@scripts/extension.sh install
	@for notice in $(NOTICES); do scripts/install-file.sh 0644 $(BUILT)/notices/$$notice $(docdir)/$$notice; done
	@scripts/docs.sh install $(mandir) $(bashdir) $(zshdir) $(fishdir)
	@scripts/state-dir.sh

.PHONY: uninstall
uninstall: ## remove what 'make install' installed
	rm -f $(bindir)/pgseal $(bindir)/pgseal-lab $(libdir)/libpgseal.so $(AWS_KMS:%=$(libdir)/providers/%) \
	    $(PLUGINS:%=$(libdir)/providers/%)
	rm -f $(NOTICES:%=$(docdir)/%)
	@if [ -d $(docdir) ]; then rmdir --ignore-fail-on-non-empty $(docdir); fi
	@if [ -d $(libdir)/providers ]; then rmdir --ignore-fail-on-non-empty $(libdir)/providers; fi
	@if [ -d $(libdir) ]; then rmdir --ignore-fail-on-non-empty $(libdir); fi
	@scripts/guard.sh uninstall
	@scripts/extension.sh uninstall
	@scripts/docs.sh uninstall $(mandir) $(bashdir) $(zshdir) $(fishdir)

.PHONY: demo
demo: ## build what it needs, then see a sealed cluster at work: about three minutes on two cores
	@scripts/setup.sh demo
	@$(MAKE) build-demo
	@scripts/demo.sh

# ---- tests ----

.PHONY: test
test: ## everything that every change must pass: about 10 minutes on two cores
	@scripts/setup.sh test $(if $(FIPS),fips)
	@$(MAKE) build build-aws-kms
	$(call step,imports of PostgreSQL's programs,15,scripts/hooks-audit.sh)
	$(call step,tests of the crates: build,120,scripts/cargo-test.sh --workspace $(UNTESTED:%=--exclude %) --no-run)
	$(call step,tests of the crates and scenarios,240,scripts/cargo-test.sh --workspace $(UNTESTED:%=--exclude %))
	@# In this profile the SDK of AWS is compiled already.
	$(call step,tests of the plugin for AWS KMS,15,scripts/cargo-test.sh --release -p $(AWS_KMS))
	$(call step,guard module,15,$(MAKE) test-guard)
	$(if $(FIPS),,$(call step,sealed columns,90,$(MAKE) test-extension))
	$(call step,PostgreSQL's core regression tests - plain and sealed,90,$(MAKE) test-core)
	$(if $(FIPS),,$(call step,commands of the main pages,90,env MAJORS=$$(. scripts/lib.sh; default_major) scripts/docs-test.sh --fast))
	@echo "make test: all passed"

.PHONY: test-unit
test-unit: ## cargo test of the crates, but for the plugin for AWS KMS
	@$(MAKE) build
	@scripts/cargo-test.sh --workspace --exclude pgseal-scenarios --exclude $(AWS_KMS)

.PHONY: test-guard
test-guard: ## the guard module against the real server
	@scripts/guard.sh test

.PHONY: test-extension
test-extension: ## sealed columns: the extension against the real server
	@scripts/extension.sh test

.PHONY: test-extension-memcheck
test-extension-memcheck: ## the extension's code under valgrind
	@scripts/setup.sh memcheck
	@scripts/extension.sh memcheck

.PHONY: test-extension-drivers
test-extension-drivers: ## drivers of four languages against sealed columns; fetches them
	@scripts/setup.sh drivers
	@scripts/extension.sh drivers

.PHONY: test-scenarios
test-scenarios: ## whole servers, the long tests too: operations, upgrade, crash, canary, ...; installs other programs
	@scripts/setup.sh test scenarios
	@$(MAKE) build build-aws-kms
	@scripts/cargo-test.sh -p pgseal-scenarios -- --include-ignored --skip everything_happens_under_load

.PHONY: soak
soak: ## load with crashes, failovers, backups, rotations, conversions by random; HOURS=n, SEED=n, EVENTS=crash,failover
	@scripts/setup.sh test
	@$(MAKE) build
	@PGSEAL_SOAK_SECONDS=$$(awk 'BEGIN { print int(3600 * $(or $(HOURS),1)) }') PGSEAL_SOAK_EVENTS="$(EVENTS)" \
	    $(if $(SEED),PGSEAL_SOAK_SEED=$(SEED)) scripts/cargo-test.sh -p pgseal-scenarios --test soak -- --ignored --nocapture

.PHONY: test-key-stores
test-key-stores: ## the plugins on SoftHSM, a TPM in software, PyKMIP, moto, and Vault's own engines; fetches these, which needs Go
	@scripts/setup.sh test
	@$(MAKE) build build-aws-kms
	@scripts/vault-server.sh build
	@scripts/cargo-test.sh -p pgseal-scenarios --features needs-go --test aws_kms --test key_stores --test kmip --test tpm2 --test vault

.PHONY: test-power
test-power: ## IMAGES (200) disks that a power cut could leave, for each test of power.rs, or for those of POWER
	@scripts/setup.sh test
	@$(MAKE) build
	@PGSEAL_POWER_IMAGES=$(or $(IMAGES),200) $(if $(SUITE),PGSEAL_POWER_SUITE=$(SUITE)) \
	    scripts/cargo-test.sh -p pgseal-scenarios --test power -- \
	    --include-ignored --nocapture --test-threads=1 --skip broken:: $(POWER)

.PHONY: test-power-broken
test-power-broken: ## the same on builds that break one order of writes on purpose: the cuts must find it
	@scripts/setup.sh test
	@$(MAKE) build
	@RUSTFLAGS="$${RUSTFLAGS:-} --cfg pgseal_broken" $(CARGO) build --quiet --release --locked \
	    --target-dir target/broken -p pgseal-preload
	@RUSTFLAGS="$${RUSTFLAGS:-} --cfg pgseal_broken" $(CARGO) build --quiet --release --locked \
	    --target-dir target/broken -p pgseal-cli
	@PGSEAL_POWER_BROKEN=$(CURDIR)/target/broken/release scripts/cargo-test.sh -p pgseal-scenarios \
	    --test power -- --ignored --nocapture --test-threads=1 broken::

.PHONY: test-lying-disk
test-lying-disk: ## a whole server on a disk that fails at the n-th write, sync or allocation, for every STRIDE-th (5) n
	@scripts/setup.sh test
	@$(MAKE) build
	@PGSEAL_LYING_STRIDE=$(or $(STRIDE),5) scripts/cargo-test.sh -p pgseal-scenarios --test lying_disk -- \
	    --include-ignored --nocapture --test-threads=1

.PHONY: test-core
test-core: ## PostgreSQL's core regression tests, plain and sealed, compared
	@$(UPSTREAM)/run-core.sh --mode plain
	@$(UPSTREAM)/run-core.sh --mode sealed
	@$(UPSTREAM)/compare.sh core

.PHONY: test-docs
test-docs: ## every command of README and docs/, on 15 and 18 (or MAJORS), each page in a machine of its own (as root)
	@scripts/setup.sh test docs
	@$(MAKE) build-aws-kms
	@$(MAKE) build PG_CONFIG="$$(scripts/postgres-versions.sh fetch $(or $(MAJORS),15 18) | tr '\n' ' ')"
	@MAJORS="$(or $(MAJORS),15 18)" scripts/docs-test.sh $(PAGES)

.PHONY: book
book: ## README, docs/ and spec/ as one searchable site, in build/book/html, with every link checked
	@scripts/setup.sh book
	@scripts/book.sh build

.PHONY: test-fleet
test-fleet: ## the Ansible role on real clusters (check mode, first run, second run, guards), and 300 hosts of an inventory
	@scripts/setup.sh server fleet
	@$(MAKE) build-demo
	@PGSEAL_ANSIBLE=$$(. scripts/lib.sh; ansible_dir) scripts/as-user.sh tests/fleet/run.sh

.PHONY: test-lab
test-lab: ## the lab with the tests that make test leaves out: all experiments in one run, compared with themselves
	@scripts/setup.sh test
	@$(MAKE) build
	@scripts/cargo-test.sh -p pgseal-lab -- --include-ignored

.PHONY: test-report
test-report: ## pages of pgseal lab in a real browser (headless), with screenshots
	@scripts/setup.sh report
	@scripts/test-report.sh

.PHONY: test-upstream
test-upstream: ## PostgreSQL's whole tree of tests on 15, 17 and 18 (or MAJORS), plain and sealed, compared
	@scripts/setup.sh upstream
	@$(MAKE) build
	@$(UPSTREAM)/run-tree.sh $(if $(RESUME),--resume) $(if $(SEALED_FIRST),--sealed-first) $(if $(SUITES),--only "$(SUITES)") $(MAJORS)

.PHONY: test-upstream-injection
test-upstream-injection: ## those of its tests that need a server with injection points, which is built for that
	@scripts/setup.sh upstream injection
	@$(MAKE) build
	@env -u PG_CONFIG $(UPSTREAM)/run-injection.sh $(MAJORS)

.PHONY: test-matrix
test-matrix: ## every check against each PostgreSQL of MAJORS (default: all that can be had)
	@scripts/setup.sh test scenarios
	@$(MAKE) build build-aws-kms
	@env -u PG_CONFIG scripts/matrix.sh run $(if $(RESUME),--resume) $(if $(CHECKS),--only "$(CHECKS)") $(MAJORS)

.PHONY: test-newest
test-newest: ## the same, but for the long scenarios, against the newest stable PostgreSQL
	@scripts/setup.sh test
	@$(MAKE) build build-aws-kms
	@env -u PG_CONFIG scripts/matrix.sh run --short newest

.PHONY: test-aarch64
test-aarch64: ## pgseal for aarch64, cross-compiled, under qemu-user with Debian's PostgreSQL for arm64 (as root); ACTIONS="build hooks"
	@scripts/setup.sh aarch64
	@scripts/aarch64.sh $(or $(ACTIONS),build hooks unit scenarios)

.PHONY: smoke-aarch64
smoke-aarch64: ## the shortest of these: a sealed cluster under qemu-user, killed and recovered (as root); builds only what it needs
	@scripts/setup.sh aarch64
	@scripts/aarch64.sh smoke

.PHONY: test-musl
test-musl: ## pgseal for musl with PostgreSQL as it was built on Alpine, in a root of its own (as root); ACTIONS="build cluster"
	@scripts/setup.sh musl
	@scripts/musl.sh $(or $(ACTIONS),build hooks unit cluster core)

.PHONY: versions
versions: ## write the table of docs/versions.md from the last runs of test-matrix
	@scripts/matrix.sh table

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZ_SECONDS (60)
	@scripts/fuzz.sh

.PHONY: bench
bench: ## cost against the plain server, interleaved
	@scripts/setup.sh build
	@$(MAKE) build
	@# 24: a load whose intervals were too wide at the end of its time, which the table says.
	@scripts/bench.sh || [ $$? = 24 ]

# ---- packages ----

.PHONY: deb
deb: ## Debian packages, in build/deb, for each PostgreSQL here or for those of MAJORS; ARCH=arm64 for that
	$(if $(filter arm64,$(ARCH)),@$(MAKE) deb-arm64,@$(MAKE) deb-native)

.PHONY: deb-arm64
deb-arm64:
	@scripts/setup.sh aarch64 auditable deb
	@scripts/aarch64.sh deb

.PHONY: deb-native
deb-native:
	@scripts/setup.sh build auditable deb
	@config="$(if $(MAJORS),$$(scripts/postgres-versions.sh fetch $(MAJORS) | tr '\n' ' '),$(PG_CONFIG))" && \
	    $(MAKE) build build-aws-kms AUDITABLE=yes PG_CONFIG="$$config" && \
	    PG_CONFIG="$$config" scripts/deb.sh build

.PHONY: test-deb
test-deb: ## install them in a clean root (debootstrap, as root) and run clusters there; lintian; ARCH=arm64 under qemu-user
	@scripts/setup.sh test-deb $(if $(filter arm64,$(ARCH)),aarch64)
	$(if $(filter arm64,$(ARCH)),@scripts/aarch64.sh test-deb,@scripts/deb.sh test)

.PHONY: rpm
rpm: ## RPM packages, in build/rpm, for each PostgreSQL here or for those of MAJORS
	@scripts/setup.sh build auditable rpm
	@config="$(if $(MAJORS),$$(scripts/postgres-versions.sh fetch $(MAJORS) | tr '\n' ' '),$(PG_CONFIG))" && \
	    $(MAKE) build build-aws-kms AUDITABLE=yes PG_CONFIG="$$config" && \
	    PG_CONFIG="$$config" scripts/rpm.sh build

.PHONY: test-rpm
test-rpm: ## install, upgrade and remove them in a clean root (debootstrap, as root) with a cluster; what they need; rpmlint
	@scripts/setup.sh test-rpm
	@scripts/rpm.sh test

# The packages of the image alone: build/deb keeps those of all majors.
IMAGE_MAJORS = $(or $(MAJOR),15) $(UPGRADE_FROM)
.PHONY: image
image: ## container image of Debian's PostgreSQL MAJOR (15; 17, 18) with pgseal, in build/image (as root); UPGRADE_FROM=15
	@scripts/setup.sh build auditable deb image
	@config="$$(scripts/postgres-versions.sh fetch $(IMAGE_MAJORS) | tr '\n' ' ')" && \
	    $(MAKE) build build-aws-kms AUDITABLE=yes PG_CONFIG="$$config" && \
	    PG_CONFIG="$$config" scripts/deb.sh build build/image/packages >/dev/null
	@scripts/image.sh build $(or $(MAJOR),15)

.PHONY: test-image
test-image: ## that image in containers of runc (as root): first start, keys, users, restarts, upgrades; UPGRADE_FROM=15 upgrades
	@scripts/setup.sh test-image
	@scripts/image-test.sh $(or $(MAJOR),15)

.PHONY: test-image-reproducible
test-image-reproducible: ## make that image a second time: the digest is the same
	@scripts/image.sh reproduce $(or $(MAJOR),15)

.PHONY: test-kubernetes
test-kubernetes: ## the manifests of packaging/kubernetes against the schemas of Kubernetes and of the operators; fetches these
	@scripts/setup.sh kubernetes
	@scripts/kubernetes-check.sh

.PHONY: release
release: ## what a release has, from the commit HEAD, in build/release; RELEASE_KEY=KEY signs, else a dry run
	@scripts/setup.sh build auditable deb rpm release aarch64
	@scripts/release.sh make

.PHONY: test-reproducible
test-reproducible: ## two builds in different directories are the same, byte for byte
	@scripts/setup.sh build auditable
	@scripts/release.sh reproduce

.PHONY: test-extensions
test-extensions: ## what Debian has of extensions, on a plain and a sealed server, in a clean root (as root); EXTENSIONS="postgis plr"
	@scripts/setup.sh build test-extensions
	@$(MAKE) build
	@scripts/extensions.sh run $(if $(RESUME),--resume) $(EXTENSIONS)
	$(if $(EXTENSIONS),,@scripts/extensions.sh table)

# ---- checks ----

.PHONY: lint
lint: ## format, clippy, shell scripts, Markdown, ASCII, crates and their dependencies, rows of the extension, licences and their texts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets --features pgseal-scenarios/needs-go --locked -- -D warnings
	@scripts/check-ascii.sh
	@scripts/check-deps.sh
	@scripts/crate-table.sh check
	@scripts/check-extension.sh
	@scripts/check-shell.sh
	@scripts/check-text.sh
	@scripts/docs-test.sh check
	@scripts/notices.sh check
	@scripts/spec.sh check
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --log-level warn check; \
	    else echo "cargo-deny is not installed: licences and advisories not checked"; fi

.PHONY: hooks-audit
hooks-audit: ## every I/O call that PostgreSQL's programs import is hooked or named as passed
	@scripts/hooks-audit.sh

.PHONY: spec
spec: ## write the generated parts of spec/
	@scripts/spec.sh write

.PHONY: crate-table
crate-table: ## write the crate table of ARCHITECTURE.md: each crate, and the crates that it may use
	@scripts/crate-table.sh write

.PHONY: clean
clean: ## remove what was built (not the cached upstream sources)
	$(CARGO) clean
	rm -rf build/results
