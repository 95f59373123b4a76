//! Who may open a socket, and what becomes of a lane that breaks the rules on it.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::net::SocketAddr;

use bytes::Bytes;
use common::lane::{ScriptedLane, hello, loaded, open, outcome};
use common::{Scene, program, request, until, within};
use futures_util::SinkExt;
use holdfast_devices::lane::{Lane, LaneOptions};
use holdfast_devices::{Device, DeviceError, ErrorKind, Outcome};
use holdfast_server::{Limits, ServerOptions, Tls};
use holdfast_wire::{FRAME_LIMIT, FromLane, HELLO_BYTES_LIMIT, Hello, ToLane, split};
use hyper::Method;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

/// The status and the text with which a socket is refused.
async fn refused(scene: &Scene, protocols: &str, origin: Option<&str>) -> (u16, String) {
    match open(scene.address(), protocols, origin).await {
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            (response.status().as_u16(), String::from_utf8(body).unwrap())
        }
        Err(other) => panic!("not refused over HTTP: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[tokio::test]
async fn a_socket_needs_the_token_the_version_and_an_origin() {
    let scene = Scene::new().await;
    let (token, origin) = (scene.token(), scene.server.origin());
    let right = format!("holdfast.v1, holdfast.token.{token}");
    let own = Some(origin.as_str());
    open(scene.address(), &right, own).await.map(drop).unwrap();

    assert_eq!(refused(&scene, &right, Some("http://evil.example")).await.0, 403);
    assert_eq!(refused(&scene, &right, None).await.0, 403);
    let (status, why) = refused(&scene, "holdfast.v1", own).await;
    assert_eq!(status, 401);
    assert!(why.contains("Open the link"), "{why}");
    let newer = format!("holdfast.v2, holdfast.token.{token}");
    let (status, why) = refused(&scene, &newer, own).await;
    assert_eq!(status, 400);
    assert!(why.contains("holdfast.v1") && why.contains("Reload"), "{why}");
    assert!(scene.lanes.all().is_empty());
}

#[tokio::test]
async fn browsers_that_are_started_here_join_without_tls_and_by_loopback_only() {
    let tls = |options: &mut ServerOptions| options.tls = Some(Tls::SelfSigned);
    let scene = Scene::with(LaneOptions::default(), tls).await;
    let link = scene.server.own_link().await.unwrap();
    let (origin, rest) = link.split_once("/join").unwrap();
    assert_eq!(rest, format!("#token={}", scene.token()));
    let address: SocketAddr = origin.strip_prefix("http://").unwrap().parse().unwrap();
    assert!(address.ip().is_loopback() && address != scene.address());

    let get = |host: String| async move {
        request(address, Method::GET, "/join", &[("host", host.as_str())]).await.status.as_u16()
    };
    assert_eq!(get(address.to_string()).await, 200);
    // It does not go by what the other door is called.
    assert_eq!(get(scene.host()).await, 421);
    assert_eq!(get(format!("evil.example:{}", address.port())).await, 421);

    let right = format!("holdfast.v1, holdfast.token.{}", scene.token());
    let foreign = [scene.server.origin(), format!("https://{address}")];
    for origin in &foreign {
        assert!(open(address, &right, Some(origin.as_str())).await.is_err(), "{origin}");
    }
    assert!(open(address, "holdfast.v1", Some(origin)).await.is_err(), "without the token");
    let mut lane = open(address, &right, Some(origin)).await.unwrap();
    lane.say(&FromLane::Hello(Box::new(hello())), &[]).await;
    assert!(matches!(lane.hear().await, (ToLane::Welcome(_), _)));
    assert_eq!(scene.lanes.all().len(), 1);

    // Where there is no TLS, there is one door.
    let scene = Scene::new().await;
    assert_eq!(scene.server.own_link().await.unwrap(), scene.server.join_link());
}

#[tokio::test]
async fn a_link_of_another_run_is_told_so_over_the_socket() {
    let scene = Scene::new().await;
    let origin = scene.server.origin();
    let old = format!("holdfast.v1, holdfast.token.{}", "0".repeat(32));
    let mut lane = open(scene.address(), &old, Some(&origin)).await.unwrap();
    lane.say(&FromLane::Hello(Box::new(hello())), &[]).await;
    let (ToLane::Refused { reason }, _) = lane.hear().await else { panic!("not refused") };
    assert!(reason.contains("another run") && reason.contains("holdfast join"), "{reason}");
    lane.hear_close().await;
    assert!(scene.lanes.all().is_empty());
    // An old link does not make up for a foreign origin.
    assert_eq!(refused(&scene, &old, Some("http://evil.example")).await.0, 403);
}

#[tokio::test]
async fn sockets_of_old_links_count_as_silent_ones() {
    let limits = Limits { waiting_sockets: 0, ..Limits::default() };
    let scene = Scene::with(LaneOptions::default(), |options| options.limits = limits).await;
    let old = format!("holdfast.v1, holdfast.token.{}", "0".repeat(32));
    assert_eq!(refused(&scene, &old, Some(&scene.server.origin())).await.0, 503);
}

#[tokio::test]
async fn the_address_of_sockets_is_for_nothing_else() {
    let scene = Scene::new().await;
    assert_eq!(scene.get("/lane", &[]).await.status.as_u16(), 426);
}

#[tokio::test]
async fn a_lane_joins_loads_and_runs() {
    let scene = Scene::new().await;
    let (mut scripted, welcome) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    assert_eq!(welcome.name, lane.info().name);
    let outcome = serve_one(&scene, &mut scripted, &lane, async |scripted, request| {
        scripted.answer(request, [11.0, 21.0]).await;
    })
    .await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.outputs[0].tensor.to_vec::<f32>().unwrap(), [11.0, 21.0]);
}

/// Loads and runs a segment on a lane that answers the run as told.
async fn serve_one(
    scene: &Scene,
    scripted: &mut ScriptedLane,
    lane: &Lane,
    answer: impl AsyncFnOnce(&mut ScriptedLane, u64),
) -> Result<Outcome, DeviceError> {
    let (loaded, _) = tokio::join!(within(lane.load(scene.segment(1))), scripted.load());
    let running = lane.run(program("one", &loaded.unwrap()));
    let (outcome, ()) = tokio::join!(within(running), async {
        let request = scripted.run().await;
        answer(scripted, request).await;
    });
    outcome
}

#[tokio::test]
async fn large_tensors_travel_both_ways_unchanged() {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let numbers: Vec<f32> = (0..3 << 20).map(|number| number as f32).collect();
    let tensor = holdfast_graph::Tensor::from_slice(&[numbers.len()], &numbers).unwrap();
    let id = holdfast_devices::TensorId("t".into());
    let script = async {
        let (ToLane::Put { request, value, .. }, body) = scripted.hear().await else { panic!() };
        scripted.say(&FromLane::Done { request }, &[]).await;
        let (ToLane::Get { request, .. }, _) = scripted.hear().await else { panic!() };
        scripted.say(&FromLane::Tensor { request, value }, &[body]).await;
    };
    let asked = async {
        lane.put(id.clone(), tensor.clone()).await.unwrap();
        lane.get(&id).await.unwrap()
    };
    let (got, ()) = within(async { tokio::join!(asked, script) }).await;
    assert_eq!(got.bytes(), tensor.bytes());
}

/// What a lane gets that lies about its output.
async fn lie(dtype: &str, dims: &[u64], byte_len: u64) {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let outcome = serve_one(&scene, &mut scripted, &lane, async |scripted, request| {
        let body = Bytes::from(vec![0; 64]);
        scripted.say(&outcome(request, dtype, dims, byte_len), &[body]).await;
    })
    .await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Protocol, "{dtype} {dims:?} {byte_len}");
    gone(&scene, &mut scripted, &lane).await;
}

/// A lane that broke the protocol is let go, and its socket is closed.
async fn gone(scene: &Scene, scripted: &mut ScriptedLane, lane: &Lane) {
    scripted.hear_close().await;
    until("the lane is gone", || lane.gone().is_some()).await;
    assert!(lane.gone().unwrap().contains("broke the protocol"), "{:?}", lane.gone());
    assert!(scene.lanes.all().is_empty());
}

#[tokio::test]
async fn a_lane_that_lies_about_its_output_is_let_go() {
    lie("i32", &[2], 8).await;
    lie("f32", &[3], 12).await;
    lie("f32", &[1, 2], 8).await;
    lie("f32", &[2], 4).await;
    lie("f32", &[2], 1 << 40).await;
    lie("f32", &[u64::MAX, 2], 8).await;
    lie("nonsense", &[2], 8).await;
}

/// What becomes of a lane that says this after it was welcome.
async fn breaks(what: &str, say: impl AsyncFnOnce(&mut ScriptedLane)) -> CloseCode {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    say(&mut scripted).await;
    let close = scripted.hear_close().await.unwrap_or_else(|| panic!("{what}: no farewell"));
    until("the lane is gone", || lane.gone().is_some()).await;
    assert!(lane.gone().unwrap().contains("broke the protocol"), "{what}: {:?}", lane.gone());
    let error = lane.load(scene.segment(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{what}");
    close.code
}

async fn breaks_by_saying(message: FromLane) {
    let what = format!("{message:?}");
    breaks(&what, async |lane| lane.say(&message, &[]).await).await;
}

#[tokio::test]
async fn messages_out_of_order_end_the_lane() {
    breaks_by_saying(FromLane::Done { request: 7 }).await;
    breaks_by_saying(FromLane::Done { request: 0 }).await;
    breaks_by_saying(FromLane::Hello(Box::new(hello()))).await;
    breaks_by_saying(FromLane::Part { request: 1, outputs: vec![] }).await;
}

#[tokio::test]
async fn frames_that_make_no_sense_end_the_lane() {
    let raw = |bytes: Vec<u8>| {
        async move |lane: &mut ScriptedLane| {
            lane.socket.send(Message::Binary(bytes.into())).await.unwrap();
        }
    };
    breaks("empty", raw(vec![])).await;
    breaks("no header", raw(vec![255; 64])).await;
    breaks("a rest without a start", raw(frame(r#"{"frame":"rest","id":3}"#))).await;
    breaks(
        "an unknown message",
        raw(frame(r#"{"frame":"start","id":3,"bodyLen":0,"message":{"type":"fly"}}"#)),
    )
    .await;
}

fn frame(header: &str) -> Vec<u8> {
    [&(header.len() as u32).to_le_bytes()[..], header.as_bytes()].concat()
}

#[tokio::test]
async fn text_ends_the_lane() {
    let code = breaks("text", async |lane| {
        lane.socket.send(Message::Text("hello".into())).await.unwrap();
    })
    .await;
    assert_eq!(code, CloseCode::Unsupported);
}

#[tokio::test]
async fn a_frame_over_the_limit_ends_the_lane() {
    let code = breaks("too large", async |lane| {
        // The server may stop reading before all of it is sent.
        let _ = lane.socket.send(Message::Binary(vec![0; FRAME_LIMIT + 1].into())).await;
    })
    .await;
    assert_eq!(code, CloseCode::Size);
}

#[tokio::test]
async fn an_answer_of_the_wrong_kind_ends_the_lane() {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let outcome = serve_one(&scene, &mut scripted, &lane, async |scripted, request| {
        scripted.say(&loaded(request), &[]).await;
    })
    .await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Protocol);
    gone(&scene, &mut scripted, &lane).await;
}

#[tokio::test]
async fn parts_that_nobody_asked_for_end_the_lane() {
    let scene = Scene::new().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let lane = scene.lane().await;
    let outcome = serve_one(&scene, &mut scripted, &lane, async |scripted, request| {
        scripted.say(&FromLane::Part { request, outputs: vec![] }, &[]).await;
    })
    .await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Protocol);
    gone(&scene, &mut scripted, &lane).await;
}

#[tokio::test]
async fn a_socket_that_does_not_say_hello_first_is_closed() {
    let scene = Scene::new().await;
    let mut scripted = ScriptedLane::open(&scene).await;
    scripted.say(&FromLane::Done { request: 1 }, &[]).await;
    scripted.hear_close().await;
    assert!(scene.lanes.all().is_empty());
}

#[tokio::test]
async fn a_hello_is_one_small_frame() {
    let long = Hello { version: "x".repeat(HELLO_BYTES_LIMIT), ..hello() };
    let body = |length| vec![Bytes::from(vec![0; length])];
    for (hello, body) in [(long, vec![]), (hello(), body(8)), (hello(), body(FRAME_LIMIT))] {
        let scene = Scene::new().await;
        let mut scripted = ScriptedLane::open(&scene).await;
        for bytes in split(1, &FromLane::Hello(Box::new(hello)), &body).unwrap().flatten() {
            // It may be closed before all of them are sent.
            let _ = within(scripted.socket.send(Message::Binary(bytes))).await;
        }
        assert!(scripted.closes_without_a_word().await);
        assert!(scene.lanes.all().is_empty());
    }
}

#[tokio::test]
async fn a_page_of_another_version_is_told_to_reload() {
    let scene = Scene::new().await;
    let mut scripted = ScriptedLane::open(&scene).await;
    let newer = Hello { protocol: 99, ..hello() };
    scripted.say(&FromLane::Hello(Box::new(newer)), &[]).await;
    let (ToLane::Refused { reason }, _) = scripted.hear().await else { panic!("not refused") };
    assert!(reason.contains("99") && reason.contains("Reload"), "{reason}");
    scripted.hear_close().await;
}

#[tokio::test]
async fn only_so_many_sockets_may_keep_silent() {
    let limits = Limits { waiting_sockets: 2, ..Limits::default() };
    let scene = Scene::with(LaneOptions::default(), |options| options.limits = limits).await;
    let mut silent = ScriptedLane::open(&scene).await;
    let _other = ScriptedLane::open(&scene).await;
    let protocols = format!("holdfast.v1, holdfast.token.{}", scene.token());
    let origin = scene.server.origin();
    assert_eq!(refused(&scene, &protocols, Some(&origin)).await.0, 503);
    // One that says hello makes room.
    silent.say(&FromLane::Hello(Box::new(hello())), &[]).await;
    silent.hear().await;
    ScriptedLane::open(&scene).await;
}
