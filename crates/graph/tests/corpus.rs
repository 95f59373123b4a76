//! What the fuzzer does, in every test run: the seven exports, built models and a few nasty
//! files, as they are and with seeded damage.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod exercise;
mod samples;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use exercise::counting::Counting;
use exercise::exercise;
use holdfast_graph::proto::ModelProto;
use holdfast_graph::{DataType, Message, Tensor, encode};
use holdfast_testkit::Numbers;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Damaged copies of each file.
const COPIES: u64 = 60;

#[test]
fn exports_survive_damage() {
    for path in files("minilm-exports") {
        let bytes = std::fs::read(&path).unwrap();
        // They name their weights, so only a folder could complete them.
        assert!(!exercise(bytes.clone().into()), "{}", path.display());
        damage(&bytes, COPIES);
        let alone = without_weights(&bytes);
        assert!(exercise(alone.clone().into()), "{}", path.display());
        damage(&alone, COPIES / 4);
    }
}

#[test]
fn built_models_are_read_and_survive_damage() {
    for model in samples::models() {
        let bytes = encode(&model);
        assert!(exercise(bytes.clone().into()));
        damage(&bytes, COPIES / 2);
    }
}

#[test]
fn nasty_files_do_no_harm() {
    let files = files("corpus");
    assert!(!files.is_empty());
    for path in files {
        let bytes = std::fs::read(&path).unwrap();
        exercise(bytes.clone().into());
        damage(&bytes, COPIES);
    }
}

/// The graph with a zero in place of every weight.
fn without_weights(bytes: &[u8]) -> Vec<u8> {
    let mut proto = ModelProto::decode(bytes).unwrap();
    for tensor in &mut proto.graph.as_mut().unwrap().initializer {
        let zero = Tensor::zeros(DataType::from_onnx(tensor.data_type).unwrap(), &[]).unwrap();
        *tensor = zero.to_proto(&tensor.name);
    }
    proto.encode_to_vec()
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_none_or(|extension| extension != "md"));
    files.sort();
    files
}

fn damage(bytes: &[u8], copies: u64) {
    for seed in 0..copies {
        let mut numbers = Numbers::labelled(seed, "damage");
        let mut copy = bytes.to_vec();
        for _ in 0..1 + numbers.below(4) {
            if !copy.is_empty() {
                damage_once(&mut copy, &mut numbers);
            }
        }
        exercise(Bytes::from(copy));
    }
}

/// One change of the kinds that bring a parser down: a bit, a byte with a meaning of its own, a
/// part that is missing, doubled or moved.
fn damage_once(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let at = numbers.below(bytes.len());
    let len = 1 + numbers.below(32.min(bytes.len() - at));
    match numbers.below(6) {
        0 => bytes[at] ^= 1 << numbers.below(8),
        1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][numbers.below(5)],
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..at + len)),
        4 => {
            let part = bytes[at..at + len].to_vec();
            let to = numbers.below(bytes.len());
            bytes.splice(to..to, part);
        }
        _ => {
            let to = numbers.below(bytes.len() - len + 1);
            bytes.copy_within(at..at + len, to);
        }
    }
}
