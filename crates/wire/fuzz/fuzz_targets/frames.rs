//! Any bytes, cut into frames as a lane might send them, put together and read.
//!
//! How to run it (needs a nightly toolchain and `cargo install cargo-fuzz`), from `crates/wire`:
//!
//! ```text
//! cargo run --example frame_seeds -- fuzz/corpus/frames    # once
//! cargo +nightly fuzz run frames -- -max_len=65536 -max_total_time=600
//! ```

#![no_main]

use bytes::{Buf, Bytes};
use holdfast_wire::{Assembler, FromLane, ToLane};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut from_lane = Assembler::<FromLane>::default();
    let mut to_lane = Assembler::<ToLane>::default();
    let mut rest = Bytes::copy_from_slice(bytes);
    // Each frame comes with its length in two bytes.
    while rest.remaining() >= 2 {
        let length = usize::from(rest.get_u16_le()).min(rest.len());
        let frame = rest.split_to(length);
        if let Ok(Some((message, body))) = from_lane.push(frame.clone()) {
            read(&message, &body);
        }
        let _ = to_lane.push(frame);
    }
});

/// Looks at the tensors that a message claims to have.
fn read(message: &FromLane, body: &Bytes) {
    match message {
        FromLane::Tensor { value, .. } => drop(value.bytes(body)),
        FromLane::Part { outputs, .. } | FromLane::Outcome { outputs, .. } => {
            for output in outputs {
                let _ = output.value.bytes(body);
            }
        }
        _ => {}
    }
}
