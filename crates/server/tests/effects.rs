//! What a lane says changes what is known of it at once, and nothing that it says is believed
//! beyond reason.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use common::lane::{ScriptedLane, loaded, outcome};
use common::{Scene, program, until, within};
use holdfast_devices::{Device, ErrorKind, Loaded, Output, Program, TensorId};
use holdfast_graph::{DataType, Tensor};
use holdfast_wire::{FromLane, KeptTensor, StepTiming, ToLane};

/// A lane that has a segment.
macro_rules! loaded_lane {
    ($scene:ident, $scripted:ident, $lane:ident, $loaded:ident) => {
        let $scene = Scene::new().await;
        let (mut $scripted, _) = ScriptedLane::join(&$scene).await;
        let $lane = $scene.lane().await;
        let (asked, _) = tokio::join!(within($lane.load($scene.segment(1))), $scripted.load());
        let $loaded = asked.unwrap();
    };
}

#[tokio::test]
async fn a_segment_that_was_lost_right_after_it_was_loaded_is_loaded_again() {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let burst = async {
        let (ToLane::Load { request, .. }, _) = scripted.hear().await else { panic!("no load") };
        scripted.say(&loaded(request), &[]).await;
        scripted.say(&FromLane::Lost { reason: "the GPU is lost".into() }, &[]).await;
    };
    let (first, ()) = tokio::join!(within(lane.load(scene.segment(1))), burst);
    until("the loss is heard", || lane.diagnostics().engine_restarts == 1).await;
    let error = lane.run(program("run", &first.unwrap())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StateLost);
    assert!(error.to_string().contains("the GPU is lost"), "{error}");
    // The lane is really asked.
    let (again, _) = tokio::join!(within(lane.load(scene.segment(1))), scripted.load());
    again.unwrap();
}

#[tokio::test]
async fn what_the_lane_calls_lost_is_loaded_again() {
    loaded_lane!(scene, scripted, lane, loaded);
    let answer = async {
        let request = Some(scripted.run().await);
        let (kind, message) = (holdfast_wire::ErrorKind::StateLost, "gone".to_owned());
        scripted.say(&FromLane::Error { request, kind, message }, &[]).await;
    };
    let (error, ()) = tokio::join!(within(lane.run(program("run", &loaded))), answer);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::StateLost);
    let (again, _) = tokio::join!(within(lane.load(scene.segment(1))), scripted.load());
    again.unwrap();
}

#[tokio::test]
async fn a_tensor_whose_put_was_given_up_and_done_all_the_same_is_dropped() {
    loaded_lane!(scene, scripted, lane, _loaded);
    let tensor = Tensor::from_slice(&[1], &[1f32]).unwrap();
    let (id, name) = (TensorId("late".to_owned()), "late".to_owned());
    let putting = tokio::spawn({
        let (lane, id) = (lane.clone(), id.clone());
        async move { lane.put(id, tensor).await }
    });
    let (ToLane::Put { request, .. }, _) = scripted.hear().await else { panic!("no put") };
    putting.abort();
    assert_eq!(scripted.hear().await.0, ToLane::Cancel { request });
    scripted.say(&FromLane::Done { request }, &[]).await;
    let (ToLane::Drop { tensor, .. }, _) = scripted.hear().await else { panic!("no drop") };
    assert_eq!(tensor, name);
    assert_eq!(lane.get(&id).await.unwrap_err().kind(), ErrorKind::Caller);
    drop(scene);
}

#[tokio::test]
async fn times_that_nothing_takes_break_the_protocol() {
    let impossible: [&[f64]; 4] = [&[1e21], &[-1.0], &[], &[1.0, 1.0]];
    for times in impossible {
        loaded_lane!(scene, scripted, lane, loaded);
        let answer = async {
            let request = scripted.run().await;
            let FromLane::Outcome { outputs, queued_ms, .. } = outcome(request, "f32", &[2], 8)
            else {
                panic!("no outcome")
            };
            let steps = times.iter().map(|&run_ms| StepTiming { run_ms, readback_ms: 0.0 });
            let steps = steps.collect();
            let lie = FromLane::Outcome { request, outputs, queued_ms, steps, kept: vec![] };
            scripted.say(&lie, &[vec![0; 8].into()]).await;
            // It is told why, and not to come back.
            let (ToLane::Leave { come_back: false, reason }, _) = scripted.hear().await else {
                panic!("no farewell")
            };
            assert!(reason.contains("broke the protocol"), "{reason}");
        };
        let (error, ()) = tokio::join!(within(lane.run(program("run", &loaded))), answer);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Protocol, "{times:?}");
        until("the lane is gone", || lane.gone().is_some()).await;
        drop(scene);
    }
}

#[tokio::test]
async fn a_shape_lie_is_noticed_even_if_the_engine_is_lost_right_after() {
    loaded_lane!(scene, scripted, lane, loaded);
    let answer = async {
        let request = scripted.run().await;
        scripted.say(&outcome(request, "f32", &[1, 2], 8), &[vec![0; 8].into()]).await;
        scripted.say(&FromLane::Lost { reason: "lost".into() }, &[]).await;
    };
    let (error, ()) = tokio::join!(within(lane.run(program("run", &loaded))), answer);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Protocol);
    drop(scene);
}

#[tokio::test]
async fn what_a_program_keeps_is_told_with_its_size() {
    loaded_lane!(scene, scripted, lane, loaded);
    let answer = async {
        let request = scripted.run().await;
        scripted.say(&keeps(request, &[("kept", "f32", &[2])]), &[]).await;
    };
    let (outcome, ()) = tokio::join!(within(lane.run(keeping(&loaded))), answer);
    let outcome = outcome.unwrap();
    let [kept] = outcome.kept.as_slice() else { panic!("{:?}", outcome.kept) };
    assert_eq!((kept.id.0.as_str(), kept.dtype), ("kept", DataType::F32));
    assert_eq!((kept.dims.as_slice(), kept.byte_len()), (&[2][..], 8));
    drop(scene);
}

#[tokio::test]
async fn a_lie_about_what_is_kept_breaks_the_protocol() {
    type Told<'a> = (&'a str, &'a str, &'a [u64]);
    let lies: [(&[Told], &str); 6] = [
        (&[], "does not say once how large tensor `kept` is"),
        (&[("kept", "f32", &[2]), ("kept", "f32", &[2])], "does not say once"),
        (
            &[("kept", "f32", &[2]), ("other", "f32", &[2])],
            "nobody asked it to keep tensor `other`",
        ),
        (&[("kept", "f32", &[1 << 40])], "but the lane keeps f32[1099511627776]"),
        (&[("kept", "i32", &[2])], "but the lane keeps i32[2]"),
        (&[("kept", "f99", &[2])], "no element type `f99`"),
    ];
    for (lie, why) in lies {
        loaded_lane!(scene, scripted, lane, loaded);
        let answer = async {
            let request = scripted.run().await;
            scripted.say(&keeps(request, lie), &[]).await;
        };
        let (error, ()) = tokio::join!(within(lane.run(keeping(&loaded))), answer);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains(why), "{error}");
        until("the lane is gone", || lane.gone().is_some()).await;
        drop(scene);
    }
}

/// A program that keeps what it computes and returns nothing.
fn keeping(loaded: &Loaded) -> Program {
    let mut program = program("keeping", loaded);
    program.steps[0].outputs[0].1 = Output::Keep(TensorId("kept".to_owned()));
    program
}

/// An outcome that claims to have kept these.
fn keeps(request: u64, kept: &[(&str, &str, &[u64])]) -> FromLane {
    let told = |&(tensor, dtype, dims): &(&str, &str, &[u64])| KeptTensor {
        tensor: tensor.to_owned(),
        dtype: dtype.to_owned(),
        dims: dims.to_vec(),
    };
    FromLane::Outcome {
        request,
        outputs: vec![],
        queued_ms: 0.0,
        steps: vec![StepTiming { run_ms: 1.0, readback_ms: 0.0 }],
        kept: kept.iter().map(told).collect(),
    }
}
