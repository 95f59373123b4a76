//! The golden frames in `spec/wire/`, which the browser's side reads too.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

use bytes::Bytes;
use holdfast_wire::{Assembler, FromLane, ToLane, split};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/wire/golden.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn bytes(hex: &Value) -> Bytes {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn frames(case: &Value) -> Vec<Bytes> {
    case["frames"].as_array().unwrap().iter().map(bytes).collect()
}

fn check<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(direction: &str) {
    for case in golden()[direction].as_array().unwrap() {
        let message: M = serde_json::from_value(case["message"].clone()).unwrap();
        let body = bytes(&case["body"]);
        let split = split(7, &message, std::slice::from_ref(&body)).unwrap();
        let made: Vec<Bytes> = split.flatten().collect();
        assert_eq!(made, frames(case), "{message:?}");
        let mut assembler = Assembler::<M>::default();
        let received = assembler.push(made[0].clone()).unwrap().unwrap();
        assert_eq!(received, (message, body));
    }
}

#[test]
fn messages_to_a_lane_are_these_bytes() {
    check::<ToLane>("to_lane");
}

#[test]
fn messages_from_a_lane_are_these_bytes() {
    check::<FromLane>("from_lane");
}

#[test]
fn broken_frames_are_refused() {
    for case in golden()["refused"].as_array().unwrap() {
        let mut assembler = Assembler::<ToLane>::default();
        let results: Vec<_> = frames(case).into_iter().map(|frame| assembler.push(frame)).collect();
        assert!(results.last().unwrap().is_err(), "accepted: {}", case["why"]);
    }
}
