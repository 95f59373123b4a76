//! Any bytes, read as a model and then used in every way.
//!
//! How to run it (needs a nightly toolchain and `cargo install cargo-fuzz`), from `crates/graph`:
//!
//! ```text
//! cargo run --example seeds -- fuzz/corpus/read    # once
//! cargo +nightly fuzz run read fuzz/corpus/read tests/corpus -- -max_len=8192 -max_total_time=1800
//! ```
//!
//! A failing input is left in `fuzz/artifacts/read`. Make it small with
//! `cargo +nightly fuzz tmin read FILE`, fix what it found, and put it under `tests/corpus`: the
//! test `corpus` runs those files, and mutations of them, with every `cargo test`.

#![no_main]

#[path = "../../tests/exercise/mod.rs"]
mod exercise;

use exercise::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    exercise::exercise(bytes::Bytes::copy_from_slice(bytes));
});
