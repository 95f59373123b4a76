//! Lanes against a scripted browser. The real one is in the server's tests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_graph::{DataType, Digest, Dim, Value};
use holdfast_models::Store;
use holdfast_wire::{
    Assembler, Backend, BrowserInfo, FromLane, Hello, KeptTensor, MachineInfo, PROTOCOL_VERSION,
    PowerInfo, Resume, StepTiming, StorageInfo, StorageKind, ToLane, WasmInfo, WebGpuInfo,
    WebNnInfo,
};

use super::state::LoadedSegment;
use super::{Lane, LaneOptions};
use crate::device::Device;
use crate::error::ErrorKind;
use crate::program::{Output, Program, RequestId, Step, TensorId};
use crate::segment::{ModelKind, SegmentId};

pub(super) fn hello(backend: Backend) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "0.1.0".into(),
        page: "page".into(),
        lane: 0,
        backend,
        browser: BrowserInfo {
            name: "Scripted".into(),
            version: "1".into(),
            platform: "Linux".into(),
            mobile: false,
        },
        machine: MachineInfo { cores: 2, memory_gib: None, cross_origin_isolated: true },
        webgpu: WebGpuInfo::Missing { reason: "scripted".into() },
        webnn: WebNnInfo::Missing { reason: "scripted".into() },
        wasm: WasmInfo { simd: true, threads: 2, jspi: true },
        storage: StorageInfo { kind: StorageKind::None, quota_bytes: None, used_bytes: 0 },
        power: PowerInfo::FULL,
        resume: None,
    }
}

/// A lane that was not heard of yet, with a segment that takes nothing and gives `y`.
pub(super) fn lane(folder: &std::path::Path, options: LaneOptions) -> Lane {
    let store = Arc::new(Store::open(folder).unwrap());
    let [name, session, key] = ["scripted", "session", "key"].map(str::to_owned);
    let lane = Lane::new(name, session, key, hello(Backend::Wasm), store, options);
    let y = Value { name: "y".into(), dtype: Some(DataType::F32), dims: Some(vec![Dim::Fixed(1)]) };
    let segment = LoadedSegment {
        inputs: Vec::new(),
        outputs: vec![y],
        blobs: Vec::new(),
        kind: ModelKind::Other,
        placement: None,
        slowest: None,
    };
    lane.state().segments.insert(segment_id(), segment);
    lane
}

fn segment_id() -> SegmentId {
    SegmentId(Digest::of(b"segment"))
}

/// A program that runs the segment once.
pub(super) fn program(deadline: Option<Duration>) -> Program {
    let step = Step { segment: segment_id(), inputs: Vec::new(), outputs: Vec::new() };
    Program { request: RequestId("it".to_owned()), deadline, steps: vec![step] }
}

/// Runs the program on a lane that does not answer, and expects it to be given up after so many
/// seconds.
async fn check_hang(deadline: Option<u64>, after: u64) {
    let folder = tempfile::tempdir().unwrap();
    let lane = lane(folder.path(), LaneOptions::default());
    let since = tokio::time::Instant::now();
    let error = lane.run(program(deadline.map(Duration::from_secs))).await.unwrap_err();
    assert_eq!((error.kind(), since.elapsed().as_secs()), (ErrorKind::Timeout, after));
}

#[tokio::test(start_paused = true)]
async fn a_hang_is_noticed_by_the_lanes_own_measure() {
    check_hang(None, 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_hang_is_noticed_however_late_the_deadline_is() {
    check_hang(Some(3600), 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_is_nearer_ends_a_run() {
    check_hang(Some(7), 7).await;
}

/// Connects a lane that knows of these requests, as far as this side can tell.
fn connect(lane: &Lane, requests: Vec<u64>) {
    lane.open(Some(&Resume { session: "session".into(), requests }), 1 << 20);
}

/// What goes out to a lane, but for the greeting.
fn sent(lane: &Lane) -> Vec<ToLane> {
    let mut assembler = Assembler::<ToLane>::default();
    let frames = std::iter::from_fn(|| lane.state().outbox.next_frame());
    let messages = frames.flatten().filter_map(|bytes| assembler.push(bytes).unwrap());
    messages.map(|(message, _)| message).filter(|m| !matches!(m, ToLane::Welcome(_))).collect()
}

/// Asks, and leaves before there is an answer.
async fn and_leave<T>(asked: impl Future<Output = T>) {
    assert!(tokio::time::timeout(Duration::from_millis(1), asked).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_before_it_was_sent_is_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let lane = lane(folder.path(), LaneOptions::default());
    connect(&lane, vec![]);
    and_leave(lane.run(program(None))).await;
    assert_eq!((sent(&lane), lane.state().abandoned.len()), (vec![], 0));
    // One that was is cancelled.
    let leave = async {
        tokio::task::yield_now().await;
        sent(&lane)
    };
    tokio::select! {
        biased;
        _ = lane.run(program(None)) => panic!("nobody answers"),
        sent = leave => assert!(matches!(sent[..], [ToLane::Run { request: 2, .. }]), "{sent:?}"),
    }
    assert_eq!(sent(&lane), [ToLane::Cancel { request: 2 }]);
    assert_eq!(lane.state().abandoned.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_comes_back_owes_only_what_it_knows() {
    let folder = tempfile::tempdir().unwrap();
    let lane = lane(folder.path(), LaneOptions::default());
    and_leave(lane.run(program(None))).await;
    and_leave(lane.run(program(None))).await;
    connect(&lane, vec![2]);
    assert_eq!(sent(&lane), [ToLane::Cancel { request: 2 }]);
    assert_eq!(lane.state().abandoned.keys().copied().collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn what_lets_go_is_done_whoever_left() {
    let folder = tempfile::tempdir().unwrap();
    let lane = lane(folder.path(), LaneOptions::default());
    connect(&lane, vec![]);
    and_leave(lane.unload(segment_id())).await;
    let sent = sent(&lane);
    assert!(matches!(sent[..], [ToLane::Unload { request: 1, .. }]), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn what_an_answer_left_that_nobody_took_goes() {
    let folder = tempfile::tempdir().unwrap();
    let lane = lane(folder.path(), LaneOptions::default());
    connect(&lane, vec![]);
    let id = TensorId("kept".into());
    let mut keeping = program(None);
    keeping.steps[0].outputs = vec![("y".into(), Output::Keep(id.clone()))];
    // Whoever had it before knows its name, and still has it.
    for had_it in [false, true] {
        let request = lane.state().next_request;
        if had_it {
            lane.state().tensors.insert(id.clone(), 4);
        }
        {
            let run = lane.run(keeping.clone());
            tokio::pin!(run);
            tokio::select! {
                biased;
                _ = &mut run => panic!("it is not answered"),
                () = std::future::ready(()) => {}
            }
            let y = KeptTensor { tensor: id.0.clone(), dtype: "f32".into(), dims: vec![1] };
            let steps = vec![StepTiming { run_ms: 1.0, readback_ms: 0.0 }];
            let (outputs, kept) = (vec![], vec![y]);
            let outcome = FromLane::Outcome { request, outputs, queued_ms: 0.0, steps, kept };
            assert!(lane.answered(request, outcome, Bytes::new()).is_ok());
            assert!(lane.state().tensors.contains_key(&id));
        }
        assert_eq!(lane.state().tensors.contains_key(&id), had_it);
        let drops = |message: &ToLane| matches!(message, ToLane::Drop { .. });
        assert_eq!(sent(&lane).iter().any(drops), !had_it);
    }
}
