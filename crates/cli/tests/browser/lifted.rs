//! Weights that segments take as inputs: a lane on WebGPU holds one copy for all of them.

use std::error::Error;

use holdfast_devices::lane::Lane;
use holdfast_devices::{Device, DeviceError, ErrorKind, Loaded, Segment};
use holdfast_graph::{DataType, Digest, Model, Tensor};
use holdfast_testkit::{Builder, Numbers, fixed};
use holdfast_wire::Backend;

use crate::rig::{Named, Rig, run, within};

const WIDTH: usize = 32;
/// Of the weight that the models have in common, of the one that each has for itself, and of both.
const SHARED_BYTES: u64 = (WIDTH * WIDTH * 4) as u64;
const OWN_BYTES: u64 = (WIDTH * 16 * 4) as u64;
const BYTES: u64 = SHARED_BYTES + OWN_BYTES;

#[tokio::test(flavor = "multi_thread")]
async fn two_segments_share_one_copy_of_a_lifted_weight_and_keep_their_bits() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Webgpu).await;
    let whole = [segment(&rig, &lane, "Relu").await, segment(&rig, &lane, "Tanh").await];
    let lifted = whole.each_ref().map(|segment| rig.lifted(segment, shared_content()));
    let mut expected = Vec::new();
    for segment in &whole {
        let loaded = load(&lane, segment).await;
        expected.push(run(&lane, &loaded, &inputs()).await);
        lane.unload(loaded.id).await.unwrap();
    }
    assert_ne!(expected[0], expected[1]);

    let first = load(&lane, &lifted[0]).await;
    assert_eq!((first.weight_bytes, first.new_weight_bytes), (BYTES, BYTES));
    let second = load(&lane, &lifted[1]).await;
    assert_eq!((second.weight_bytes, second.new_weight_bytes), (BYTES, OWN_BYTES));
    for (loaded, expected) in [&first, &second].into_iter().zip(&expected) {
        let names: Vec<&str> = loaded.inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, ["x"]);
        // Shaders are compiled with the weight fed as in every run.
        assert_eq!(loaded.first_run_error, None);
        assert!(loaded.first_run.is_some());
        assert_eq!(run(&lane, loaded, &inputs()).await, *expected);
    }
    assert_eq!(held(&lane).await, (SHARED_BYTES, SHARED_BYTES + 2 * OWN_BYTES));

    lane.unload(first.id).await.unwrap();
    assert_eq!(held(&lane).await, (SHARED_BYTES, BYTES));
    assert_eq!(run(&lane, &second, &inputs()).await, expected[1]);
    lane.unload(second.id).await.unwrap();
    assert_eq!(held(&lane).await, (0, 0));

    // What was let go is brought again.
    let again = load(&lane, &lifted[0]).await;
    assert_eq!(again.new_weight_bytes, BYTES);
    assert_eq!(run(&lane, &again, &inputs()).await, expected[0]);
    assert_eq!(held(&lane).await, (SHARED_BYTES, BYTES));
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_lifted_weight_is_said() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Webgpu).await;
    let whole = segment(&rig, &lane, "Relu").await;
    let lifted = rig.lifted(&whole, shared_content());
    let with = |content: Digest| {
        let mut wrong = lifted.clone();
        wrong.lifted[0].content = content;
        wrong
    };

    let nowhere = Digest::of(b"nobody has stored this");
    let missing = explain(lane.load(with(nowhere)).await.unwrap_err());
    assert!(missing.contains("cannot read a lifted weight"), "{missing}");
    assert!(missing.contains(&format!("blob {nowhere} is missing")), "{missing}");

    let other = whole.graph.weights.iter().find(|weight| weight.bytes == OWN_BYTES).unwrap();
    let short = explain(lane.load(with(other.content)).await.unwrap_err());
    assert!(short.contains(&format!("has {OWN_BYTES} bytes")), "{short}");

    // Only GPUs take inputs from where they are.
    for backend in [Backend::Wasm, Backend::Webnn] {
        let lane = rig.lane(backend).await;
        let error = within("a load", lane.load(lifted.clone())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().contains("lifted weights need WebGPU"), "{error}");
    }

    // None of this has left anything behind.
    assert_eq!(held(&lane).await, (0, 0));
    load(&lane, &lifted).await;
    assert_eq!(held(&lane).await, (SHARED_BYTES, BYTES));
    browser.close().await.unwrap();
}

/// `y = operator(x · shared) · own`.
fn model(operator: &str) -> Model {
    let mut builder = Builder::new(operator, 0);
    let x = builder.input("x", DataType::F32, &[fixed(2), fixed(WIDTH)]);
    let w = builder.initializer("shared", &shared());
    let own = builder.initializer("own", &numbers(operator, &[WIDTH, 16]));
    let hidden = builder.node("MatMul", &[&x, &w], &[]);
    let hidden = builder.node(operator, &[&hidden], &[]);
    let y = builder.node("MatMul", &[&hidden, &own], &[]);
    builder.output("y", &y, DataType::F32, &[fixed(2), fixed(16)]);
    builder.finish().unwrap()
}

async fn segment(rig: &Rig, lane: &Lane, operator: &str) -> Segment {
    let graph = rig.import(operator, &model(operator));
    rig.segment(&graph, lane.target(), &[]).await
}

async fn load(lane: &Lane, segment: &Segment) -> Loaded {
    within("a load", lane.load(segment.clone())).await.unwrap()
}

/// The bytes of lifted weights that the engine holds, and of all weights of the segments there.
async fn held(lane: &Lane) -> (u64, u64) {
    let stats = lane.stats().await.unwrap();
    (stats.lifted_bytes, stats.weight_bytes)
}

fn inputs() -> Named {
    [("x".to_owned(), numbers("x", &[2, WIDTH]))].into()
}

fn shared() -> Tensor {
    numbers("shared", &[WIDTH, WIDTH])
}

fn shared_content() -> Digest {
    Digest::of(shared().bytes())
}

/// Numbers between -1 and 1, the same for the same label.
fn numbers(label: &str, dims: &[usize]) -> Tensor {
    let mut numbers = Numbers::labelled(0, label);
    let next = || numbers.below(2001) as f32 / 1000.0 - 1.0;
    let values: Vec<f32> = std::iter::repeat_with(next).take(dims.iter().product()).collect();
    Tensor::from_slice(dims, &values).unwrap()
}

/// An error with its causes.
fn explain(error: DeviceError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
