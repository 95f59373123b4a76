//! Lanes whose connection is cut: what they come back to, and what is lost if they do not.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::time::Duration;

use common::lane::ScriptedLane;
use common::{Scene, program, until, within};
use holdfast_devices::lane::{Lane, LaneOptions};
use holdfast_devices::{Device, DeviceError, ErrorKind, Loaded, Outcome};
use holdfast_wire::Welcome;
use tokio::task::JoinHandle;

struct Running {
    scene: Scene,
    scripted: ScriptedLane,
    welcome: Welcome,
    lane: Lane,
    loaded: Loaded,
    /// The number of the run.
    request: u64,
    outcome: JoinHandle<Result<Outcome, DeviceError>>,
}

/// A lane that has been asked to run something.
async fn running(options: LaneOptions) -> Running {
    let scene = Scene::with(options, |_| ()).await;
    let (mut scripted, welcome) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let (loaded, _) = tokio::join!(within(lane.load(scene.segment(1))), scripted.load());
    let loaded = loaded.unwrap();
    let outcome = run(&lane, "first", &loaded);
    let request = scripted.run().await;
    Running { scene, scripted, welcome, lane, loaded, request, outcome }
}

fn run(lane: &Lane, name: &str, loaded: &Loaded) -> JoinHandle<Result<Outcome, DeviceError>> {
    let (lane, program) = (lane.clone(), program(name, loaded));
    tokio::spawn(async move { within(lane.run(program)).await })
}

async fn numbers(outcome: JoinHandle<Result<Outcome, DeviceError>>) -> Vec<f32> {
    outcome.await.unwrap().unwrap().outputs[0].tensor.to_vec().unwrap()
}

#[tokio::test]
async fn an_answer_that_was_kept_is_delivered_after_the_cut() {
    let Running { scene, scripted, welcome, lane, request, outcome, .. } =
        running(LaneOptions::default()).await;
    drop(scripted);
    until("the cut is noticed", || !lane.is_connected()).await;
    let (mut back, again) = ScriptedLane::rejoin(&scene, &welcome.session, &[request]).await;
    assert!(again.resumed);
    assert_eq!(again.name, welcome.name);
    back.answer(request, [1.0, 2.0]).await;
    assert_eq!(numbers(outcome).await, [1.0, 2.0]);
    assert_eq!(lane.diagnostics().connections, 2);
}

#[tokio::test]
async fn a_request_that_the_lane_never_heard_is_asked_again() {
    let Running { scene, scripted, welcome, lane, request, outcome, loaded, .. } =
        running(LaneOptions::default()).await;
    drop(scripted);
    until("the cut is noticed", || !lane.is_connected()).await;
    // Asked while nobody is there.
    let second = run(&lane, "second", &loaded);
    until("both wait", || lane.in_flight() == 2).await;
    let (mut back, _) = ScriptedLane::rejoin(&scene, &welcome.session, &[]).await;
    assert_eq!(back.run().await, request);
    let other = back.run().await;
    back.answer(other, [3.0, 4.0]).await;
    back.answer(request, [1.0, 2.0]).await;
    assert_eq!(numbers(outcome).await, [1.0, 2.0]);
    assert_eq!(numbers(second).await, [3.0, 4.0]);
}

#[tokio::test]
async fn a_request_that_was_given_up_meanwhile_is_cancelled() {
    let Running { scene, scripted, welcome, lane, request, outcome, .. } =
        running(LaneOptions::default()).await;
    drop(scripted);
    until("the cut is noticed", || !lane.is_connected()).await;
    assert!(lane.cancel(&holdfast_devices::RequestId("first".into())));
    assert_eq!(outcome.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    let (mut back, _) = ScriptedLane::rejoin(&scene, &welcome.session, &[request]).await;
    assert_eq!(back.hear().await.0, holdfast_wire::ToLane::Cancel { request });
}

#[tokio::test]
async fn a_lane_that_comes_back_before_the_cut_is_noticed_takes_over() {
    let Running { scene, mut scripted, welcome, lane, request, outcome, .. } =
        running(LaneOptions::default()).await;
    let mut session = welcome.session;
    for _ in 0..20 {
        let (back, again) = ScriptedLane::rejoin(&scene, &session, &[request]).await;
        assert!(again.resumed);
        session = again.session;
        // The old socket is closed, and got nothing that was meant for the new one.
        scripted.hear_close().await;
        scripted = back;
    }
    scripted.answer(request, [1.0, 2.0]).await;
    assert_eq!(numbers(outcome).await, [1.0, 2.0]);
    assert!(lane.is_connected());
}

#[tokio::test]
async fn a_lane_that_takes_over_hears_every_request_and_the_old_socket_none() {
    let Running { scene, mut scripted, welcome, lane, request, loaded, .. } =
        running(LaneOptions::default()).await;
    // More than wait in the channels between the lane and its socket.
    let mut requests = vec![request];
    let mut waiting = Vec::new();
    for number in 0..40 {
        waiting.push(run(&lane, &format!("run {number}"), &loaded));
        requests.push(scripted.run().await);
    }
    let (mut back, _) = ScriptedLane::rejoin(&scene, &welcome.session, &[]).await;
    for request in requests {
        assert_eq!(back.run().await, request);
    }
    assert!(scripted.closes_without_a_word().await);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_lane_that_stays_away_too_long_has_lost_its_state() {
    let options = LaneOptions { grace: Duration::from_millis(50), ..LaneOptions::default() };
    let Running { scene, scripted, welcome, lane, outcome, loaded, .. } = running(options).await;
    drop(scripted);
    assert_eq!(outcome.await.unwrap().unwrap_err().kind(), ErrorKind::StateLost);
    assert!(lane.gone().unwrap().contains("did not come back"));
    let late = lane.run(program("late", &loaded)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::StateLost);
    until("nobody is left", || scene.lanes.all().is_empty()).await;
    // It is taken in, but as somebody new.
    let (_back, again) = ScriptedLane::rejoin(&scene, &welcome.session, &[]).await;
    assert!(!again.resumed);
    assert_ne!(again.session, welcome.session);
    assert_ne!(again.blob_key, welcome.blob_key);
}

#[tokio::test]
async fn a_wrong_session_resumes_nothing() {
    let Running { scene, mut scripted, lane, request, outcome, .. } =
        running(LaneOptions::default()).await;
    let (_stranger, welcome) = ScriptedLane::rejoin(&scene, &"0".repeat(32), &[request]).await;
    assert!(!welcome.resumed);
    assert_ne!(welcome.name, lane.info().name);
    scripted.answer(request, [1.0, 2.0]).await;
    assert_eq!(numbers(outcome).await, [1.0, 2.0]);
}

#[tokio::test]
async fn a_lane_that_falls_silent_is_cut_and_may_come_back() {
    let options = LaneOptions { heartbeat: Duration::from_secs(1), ..LaneOptions::default() };
    let Running { scene, scripted, welcome, lane, request, outcome, .. } = running(options).await;
    // The socket stays open, but nobody answers its pings.
    until("it is cut", || !lane.is_connected()).await;
    assert!(lane.diagnostics().last_cut.unwrap().contains("nothing was heard"));
    // Where the machine stands still, that is silence too: then it comes back once more.
    while !outcome.is_finished() {
        let (mut back, again) = ScriptedLane::rejoin(&scene, &welcome.session, &[request]).await;
        assert!(again.resumed);
        back.answer(request, [1.0, 2.0]).await;
        until("it is heard or cut", || outcome.is_finished() || !lane.is_connected()).await;
    }
    assert_eq!(numbers(outcome).await, [1.0, 2.0]);
    drop(scripted);
}
