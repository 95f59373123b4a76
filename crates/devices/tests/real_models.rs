//! Real models give what a bare session of the library gives by default.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::inputs::{integers, minilm_inputs, sample};
use common::{
    GTE_SMALL, MAGIKA, MINILM, Named, RAPIDOCR_CLASSIFY, RAPIDOCR_DETECT, RAPIDOCR_RECOGNISE,
    SILERO_VAD, Scratch, assert_close, bare, block_on, third_party,
};
use holdfast_graph::{DataType, Tensor, Value};
use holdfast_testkit::fixed;

#[test]
fn minilm() {
    check(MINILM, &[minilm_inputs(1, 16), minilm_inputs(3, 9)]);
}

#[test]
fn gte_small() {
    check(GTE_SMALL, &[minilm_inputs(1, 16), minilm_inputs(3, 9)]);
}

#[test]
fn magika() {
    check(MAGIKA, &[1, 3].map(|batch| random("bytes", DataType::I32, &[batch, 2048])));
}

#[test]
fn silero_vad_at_both_rates() {
    let inputs = [(16_000, 512), (8_000, 256)].map(|(rate, samples)| {
        let mut inputs = random("input", DataType::F32, &[1, samples]);
        inputs.extend(random("state", DataType::F32, &[2, 1, 128]));
        inputs.insert("sr".to_owned(), integers(&[], |_| rate));
        inputs
    });
    check(SILERO_VAD, &inputs);
}

#[test]
fn rapidocr_detector() {
    check(RAPIDOCR_DETECT, &[random("x", DataType::F32, &[1, 3, 96, 128])]);
}

#[test]
fn rapidocr_recogniser() {
    check(RAPIDOCR_RECOGNISE, &[random("x", DataType::F32, &[2, 3, 48, 160])]);
}

#[test]
fn rapidocr_classifier() {
    check(RAPIDOCR_CLASSIFY, &[1, 3].map(|batch| random("x", DataType::F32, &[batch, 3, 48, 192])));
}

fn check(path: &str, inputs: &[Named]) {
    let scratch = Scratch::new();
    let file = std::fs::read(third_party(path)).unwrap();
    let mut bare = bare::session(&scratch.engine, &file, None);
    let graph = scratch.import_third_party(path);
    block_on(async {
        let loaded = scratch.load(&graph).await;
        for inputs in inputs {
            let found = scratch.run(&loaded, inputs).await;
            assert_close(path, &found, &bare::run(&mut bare, inputs), 1e-5);
            assert!(found.values().all(varies), "{path}: an output is constant");
        }
    });
}

/// Outputs that are all one number would agree for no reason.
fn varies(output: &Tensor) -> bool {
    let values = output.to_vec::<f32>().unwrap();
    values.len() == 1 || values.iter().any(|value| *value != values[0])
}

fn random(name: &str, dtype: DataType, dims: &[usize]) -> Named {
    let dims = dims.iter().map(|&dim| fixed(dim)).collect();
    let value = Value { name: name.to_owned(), dtype: Some(dtype), dims: Some(dims) };
    sample(&[value], &[], 11)
}
