//! What the engine holds in memory, and that it gives it back. One test in a program of its own,
//! because the kernel counts by process. Bounds are about twice what was measured.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]
#![cfg(target_os = "linux")]

mod common;

use common::inputs::minilm_inputs;
use common::{MINILM, Scratch, block_on};
use holdfast_devices::{Device, Output, ProcessMemory, Segment, TensorId, process_memory};

const MB: u64 = 1_000_000;

#[test]
fn weights_are_held_once_and_memory_comes_back() {
    let scratch = Scratch::new();
    let engine = &scratch.engine;
    let graph = scratch.import_third_party(MINILM);
    block_on(async {
        let free = Segment::new(scratch.lower(&graph).await);
        let mut bound = free.clone();
        bound.dims.insert("batch_size".to_owned(), 4);
        let inputs = minilm_inputs(4, 128);
        let empty = measure();
        for round in 0..3 {
            let first = engine.load(free.clone()).await.unwrap();
            assert!(first.weight_bytes > 85 * MB);
            // Only packed copies are in memory, which are half of this model; 42 MB.
            let loaded = measure();
            let more = loaded.private_bytes.saturating_sub(empty.private_bytes);
            assert!(more < 65 * MB, "round {round}: a session takes {more} bytes");

            let expected = scratch.run(&first, &inputs).await;
            let ran = measure();
            let second = engine.load(bound.clone()).await.unwrap();
            assert_eq!(scratch.run(&second, &inputs).await, expected);
            let more = measure().anonymous_bytes.saturating_sub(ran.anonymous_bytes);
            // The second run of any session takes some more for activations, once.
            assert!(more < 30 * MB, "round {round}: a second session takes {more} bytes");
            let ran = measure();
            engine.unload(second.id).await.unwrap();
            let second = engine.load(bound.clone()).await.unwrap();
            assert_eq!(scratch.run(&second, &inputs).await, expected);
            let more = measure().anonymous_bytes.saturating_sub(ran.anonymous_bytes);
            assert!(more < 6 * MB, "round {round}: a third session takes {more} bytes");

            let mut program = scratch.program(&second, &inputs);
            let kept = TensorId("kept".to_owned());
            program.steps[0].outputs[0].1 = Output::Keep(kept.clone());
            engine.run(program).await.unwrap();
            assert_eq!(engine.get(&kept).await.unwrap(), expected["last_hidden_state"]);
            engine.drop_tensor(&kept).await.unwrap();
            drop(expected);
            engine.unload(first.id).await.unwrap();
            engine.unload(second.id).await.unwrap();
            let more = measure().anonymous_bytes.saturating_sub(empty.anonymous_bytes);
            assert!(more < 16 * MB, "round {round}: {more} bytes did not come back");
        }
    });
}

fn measure() -> ProcessMemory {
    process_memory().unwrap()
}
