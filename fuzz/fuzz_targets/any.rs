//! Runs one fuzz target of the library, or of the memcached, under libFuzzer; the variable `TARGET` names it.
//!
//!     mkdir -p fuzz/target/found
//!     TARGET=decode cargo +nightly fuzz run any fuzz/target/found crates/breakeven/tests/corpus/decode
#![no_main]

use std::sync::LazyLock;

static CHOSEN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TARGET").expect("TARGET names a fuzz target");
    let of_library = breakeven::fuzz::TARGETS.iter().map(|target| (target.name, target.run));
    let mut targets = of_library.chain(breakeven_memcached::fuzz::TARGETS.iter().copied());
    targets
        .find(|target| target.0 == name)
        .expect("TARGET is one of breakeven::fuzz::TARGETS or breakeven_memcached::fuzz::TARGETS")
        .1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| CHOSEN(data));
