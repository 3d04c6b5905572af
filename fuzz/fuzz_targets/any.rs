//! Runs one fuzz target of the library under libFuzzer; the variable `TARGET` names it.
//!
//!     mkdir -p fuzz/target/found
//!     TARGET=decode cargo +nightly fuzz run any fuzz/target/found crates/breakeven/tests/corpus/decode
#![no_main]

use std::sync::LazyLock;

use breakeven::fuzz::{TARGETS, Target};

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("TARGET").expect("TARGET names a fuzz target");
    *TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("TARGET is one of breakeven::fuzz::TARGETS")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (CHOSEN.run)(data));
