//! Weights that segments take as inputs, as a lane and its blobs see them.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::lane::{ScriptedLane, loaded};
use common::{Scene, within};
use holdfast_devices::{Device, DeviceError, ErrorKind, LiftedInput, Loaded, Segment};
use holdfast_graph::{DataType, Digest, blob_name, lift};
use holdfast_models::hashed_weights;
use holdfast_wire::{FromLane, ToLane};
use hyper::StatusCode;

/// Of the weight of the scene's model.
const WEIGHT_BYTES: u64 = 4096 * 4;

#[tokio::test]
async fn a_lifted_weight_is_fetched_counted_once_and_not_asked_of_programs() {
    let scene = Scene::new().await;
    let (mut scripted, welcome) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let key = format!("Bearer {}", welcome.blob_key);
    let first = lifted(&scene);
    let content = first.lifted[0].content;
    let path = format!("/blobs/{}", blob_name(&content));
    let status = async || scene.get(&path, &[("authorization", &key)]).await.status;
    assert_eq!(status().await, StatusCode::FORBIDDEN);

    let answer = async {
        let (message, _) = scripted.hear().await;
        let ToLane::Load { request, weights, lifted, .. } = message else { panic!("no load") };
        assert_eq!((weights.len(), lifted.len()), (0, 1));
        assert_eq!(lifted[0].blob.name, blob_name(&content));
        assert_eq!((lifted[0].dtype.as_str(), &lifted[0].dims[..]), ("f32", &[4096][..]));
        assert_eq!(status().await, StatusCode::OK);
        scripted.say(&loaded(request), &[]).await;
    };
    let (one, ()) = tokio::join!(within(lane.load(first.clone())), answer);
    let one = one.unwrap();
    assert_eq!(names(&one), ["x"]);
    assert_eq!((one.weight_bytes, one.new_weight_bytes), (WEIGHT_BYTES, WEIGHT_BYTES));

    let second = Segment { dims: [("n".to_owned(), 1)].into(), ..first };
    let (two, _) = tokio::join!(within(lane.load(second)), scripted.load());
    let two = two.unwrap();
    assert_eq!((two.weight_bytes, two.new_weight_bytes), (WEIGHT_BYTES, 0));

    // It is the lane's for as long as one of them is there.
    for (loaded, after) in [(one, StatusCode::OK), (two, StatusCode::FORBIDDEN)] {
        let answer = async {
            let (ToLane::Unload { request, .. }, _) = scripted.hear().await else {
                panic!("no unload")
            };
            scripted.say(&FromLane::Done { request }, &[]).await;
        };
        let (done, ()) = tokio::join!(within(lane.unload(loaded.id)), answer);
        done.unwrap();
        assert_eq!(status().await, after);
    }
}

#[tokio::test]
async fn a_lifted_weight_that_does_not_fit_is_refused_before_the_lane_is_asked() {
    let scene = Scene::new().await;
    let (_scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let right = lifted(&scene);
    let graph = right.graph.graph;
    let wrong = |change: &dyn Fn(&mut LiftedInput)| {
        let mut wrong = right.clone();
        change(&mut wrong.lifted[0]);
        wrong
    };
    let twice =
        Segment { lifted: [&right.lifted[..], &right.lifted[..]].concat(), ..right.clone() };
    for (segment, why) in [
        (wrong(&|weight| weight.input = "v".to_owned()), "no input `v`"),
        (twice, "lifted twice"),
        (
            wrong(&|weight| weight.dtype = DataType::I32),
            "is f32[4096], but its lifted weight is i32",
        ),
        (wrong(&|weight| weight.dims = vec![64, 64]), "but its lifted weight is f32[64, 64]"),
        (wrong(&|weight| weight.content = graph), &format!("but blob {graph} has")),
        (wrong(&|weight| weight.content = Digest::of(b"?")), "cannot read a lifted weight"),
    ] {
        let error: DeviceError = within(lane.load(segment)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Caller);
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(lane.in_flight(), 0);
}

/// The scene's model with its weight as an input.
fn lifted(scene: &Scene) -> Segment {
    let segment = scene.segment(1);
    let model = scene.store.open_graph(&segment.graph).unwrap();
    let weights = hashed_weights(&model);
    let lifted = lift(&model, &weights, |_| true);
    let (from, kept) = (&segment.graph.graph, hashed_weights(&lifted.model));
    let graph = scene.store.put_derived(from, "lifted", &lifted.model, &kept).unwrap();
    Segment { graph, lifted: LiftedInput::of(&lifted, &weights), ..segment }
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.inputs.iter().map(|input| input.name.as_str()).collect()
}
