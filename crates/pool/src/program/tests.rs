//! What becomes of what a program left behind.

use std::sync::Arc;

use holdfast_devices::{ErrorKind, Segment};
use holdfast_models::StoredGraph;

use super::*;
use crate::scripted::{Scripted, request, x, y};

#[tokio::test(start_paused = true)]
async fn what_a_device_kept_is_told_whatever_becomes_of_the_rest() {
    let device = Scripted::new("a");
    let segments = [1u8, 2].map(|number| {
        Segment::new(StoredGraph { graph: Digest::of(&[number]), weights: Vec::new() })
    });
    device.load(segments[1].clone()).await.unwrap();
    let source = Source::Input { name: "x".to_owned(), casts: Vec::new() };
    let step = |segment| Step {
        segment,
        inputs: vec![("x".to_owned(), source.clone())],
        outputs: vec!["y".to_owned()],
        trunk: true,
    };
    let from = |step| StepOutput { step, output: "y".to_owned() };
    let outputs = vec![("one".to_owned(), from(0)), ("two".to_owned(), from(1))];
    let whole = Prepared::whole(Digest::of(b"whole"), segments[0].clone(), &[x()], &[y()]);
    let steps = vec![step(0), step(1)];
    let model = Prepared::shared(Arc::new(whole), Arc::default(), segments.into(), steps, outputs);
    let inputs = request(1, 1.0).inputs;
    let values = Values::of(&model, &inputs, "").unwrap();
    // The first is said to be there, and is not.
    let lost = ("y".to_owned(), (TensorId("lost".to_owned()), 4));
    let lost = KeptValue { tensors: [lost].into(), ..KeptValue::default() };
    let there = There { values: [(values.steps[0].unwrap(), lost)].into() };
    let asked = Asked { model: &model, inputs: &inputs, values: Some(&values), there: &there };
    let mut kept = Vec::new();
    let error = run(&device, &[asked], None, &mut kept).await.err().unwrap();
    assert_eq!((error.kind(), device.kept()), (ErrorKind::StateLost, 1));
    assert_eq!(kept.iter().map(|kept| kept.value).collect::<Vec<_>>(), [values.steps[1].unwrap()]);
}
