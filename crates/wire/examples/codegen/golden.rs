//! Golden frames: every message as the bytes that both sides have to understand.

use bytes::Bytes;
use holdfast_wire::*;
use serde::Serialize;
use serde_json::{Value, json};

/// The cases in JSON, bytes in hexadecimal.
pub(crate) fn cases() -> String {
    let cases = json!({ "to_lane": to_lane(), "from_lane": from_lane(), "refused": refused() });
    serde_json::to_string_pretty(&cases).expect("JSON of JSON") + "\n"
}

fn case<M: Serialize>(message: &M, body: Vec<Bytes>) -> Value {
    let frames = split(7, message, &body).expect("a small message").flatten();
    let frames: Vec<String> = frames.map(|frame| hex(&frame)).collect();
    json!({ "message": message, "body": hex(&body.concat()), "frames": frames })
}

fn to_lane() -> Vec<Value> {
    let blob =
        |fill: &str, byte_len| BlobRef { name: format!("sha256-{}", fill.repeat(32)), byte_len };
    let segment = "5e".repeat(32);
    let mut body = BodyWriter::default();
    let ids = body.push(
        "i64",
        vec![1, 2],
        Bytes::from_static(&[7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
    );
    let mask = body.push("bool", vec![3], Bytes::from_static(&[1, 0, 1]));
    let scale = body.push("f32", vec![], Bytes::from_static(&[0, 0, 0x80, 0x3f]));
    let run = ToLane::Run {
        request: 5,
        deadline_ms: 30_000,
        steps: vec![
            Step {
                segment: segment.clone(),
                inputs: vec![
                    NamedInput { name: "ids".into(), from: Input::Inline { value: ids } },
                    NamedInput { name: "mask".into(), from: Input::Inline { value: mask } },
                    NamedInput { name: "scale".into(), from: Input::Inline { value: scale } },
                ],
                outputs: vec![
                    NamedOutput {
                        name: "hidden".into(),
                        to: Output { returned: false, keep: None },
                    },
                    NamedOutput {
                        name: "pooled".into(),
                        to: Output { returned: true, keep: None },
                    },
                ],
                early: true,
            },
            Step {
                segment: segment.clone(),
                inputs: vec![
                    NamedInput {
                        name: "ids".into(),
                        from: Input::Step { step: 0, output: "hidden".into() },
                    },
                    NamedInput {
                        name: "past".into(),
                        from: Input::Kept { tensor: "past \"ü\"".into() },
                    },
                ],
                outputs: vec![NamedOutput {
                    name: "present".into(),
                    to: Output { returned: true, keep: Some("past \"ü\"".into()) },
                }],
                early: false,
            },
        ],
    };
    let mut kept = BodyWriter::default();
    let value = kept.push("u8", vec![5], Bytes::from_static(b"bytes"));
    vec![
        case(
            &ToLane::Welcome(Welcome {
                session: "a1".repeat(16),
                resumed: false,
                name: "chromium-1/wasm".into(),
                blob_key: "b2".repeat(16),
                cache_limit_bytes: 4 << 30,
                tensor_limit_bytes: 1 << 30,
                frame_bytes: 1 << 20,
                heartbeat_ms: 5000,
            }),
            vec![],
        ),
        case(&ToLane::Refused { reason: "reload the page".into() }, vec![]),
        case(
            &ToLane::Load {
                request: 1,
                segment: segment.clone(),
                graph: blob("aa", 1234),
                weights: vec![blob("bb", 90_000_000), blob("cc", 1024)],
                lifted: vec![LiftedWeight {
                    input: "embedding".into(),
                    blob: blob("dd", 2048),
                    dtype: "f16".into(),
                    dims: vec![32, 32],
                }],
                dims: [("batch_size".to_owned(), 1)].into(),
                warm_up: vec![TensorShape {
                    name: "ids".into(),
                    dtype: "i64".into(),
                    dims: vec![1, 16],
                }],
                outputs: vec!["hidden".into()],
            },
            vec![],
        ),
        case(&ToLane::Unload { request: 2, segment }, vec![]),
        case(&ToLane::Put { request: 3, tensor: "t".into(), value }, kept.finish()),
        case(&ToLane::Get { request: 4, tensor: "t".into(), window: None }, vec![]),
        case(
            &ToLane::Get {
                request: 4,
                tensor: "t".into(),
                window: Some(TensorWindow { offset: 6, dims: vec![2, 3], strides: vec![8, 1] }),
            },
            vec![],
        ),
        case(
            &ToLane::Copy { request: 4, tensor: "t".into(), window: None, to: "u".into() },
            vec![],
        ),
        case(&run, body.finish()),
        case(&ToLane::Drop { request: 6, tensor: "t".into() }, vec![]),
        case(&ToLane::Cancel { request: 5 }, vec![]),
        case(&ToLane::Ack { requests: vec![1, 2, 3] }, vec![]),
        case(&ToLane::Stats { request: 8 }, vec![]),
        case(&ToLane::Ping { nonce: 9 }, vec![]),
        case(&ToLane::Leave { reason: "Holdfast ends".into(), come_back: true }, vec![]),
    ]
}

fn from_lane() -> Vec<Value> {
    let mut body = BodyWriter::default();
    let odd = body.push("u8", vec![3], Bytes::from_static(&[1, 2, 3]));
    let value = body.push("f32", vec![1], Bytes::from_static(&[0, 0, 0, 0x40]));
    let outputs = vec![
        OutputTensor { step: 0, name: "odd".into(), value: odd.clone() },
        OutputTensor { step: 1, name: "value".into(), value },
    ];
    let body = body.finish();
    vec![
        case(&FromLane::Hello(Box::new(hello())), vec![]),
        case(
            &FromLane::Progress {
                request: 1,
                phase: LoadPhase::WarmUp,
                done_bytes: 10,
                total_bytes: 10,
            },
            vec![],
        ),
        case(
            &FromLane::Loaded {
                request: 1,
                traffic: WeightTraffic { downloaded_bytes: 90_000_000, cached_bytes: 1024 },
                fetch_ms: 120.5,
                create_ms: 300.0,
                warm_up_ms: None,
                warm_up_error: Some("no".into()),
                placement: Some("1 of 2 nodes on the processor (Slice)".into()),
            },
            vec![],
        ),
        case(&FromLane::Done { request: 2 }, vec![]),
        case(&FromLane::Tensor { request: 4, value: odd }, vec![body[0].clone()]),
        case(&FromLane::Part { request: 5, outputs: outputs.clone() }, body.clone()),
        case(
            &FromLane::Outcome {
                request: 5,
                outputs,
                queued_ms: 0.25,
                steps: vec![StepTiming { run_ms: 1.5, readback_ms: 0.5 }],
                kept: vec![KeptTensor {
                    tensor: "past \"ü\"".into(),
                    dtype: "f16".into(),
                    dims: vec![1, 2, 64],
                }],
            },
            body,
        ),
        case(
            &FromLane::Stats {
                request: 8,
                stats: LaneStats {
                    segments: 1,
                    tensors: 2,
                    tensor_bytes: 64,
                    device_tensor_bytes: 16,
                    lifted_bytes: 2048,
                    unacknowledged: 1,
                    cache_bytes: 90_001_024,
                    downloaded_bytes: 90_000_000,
                    engine_restarts: 1,
                    engine_heap_bytes: None,
                },
            },
            vec![],
        ),
        case(&FromLane::Pong { nonce: 9 }, vec![]),
        case(
            &FromLane::Error {
                request: Some(5),
                kind: ErrorKind::StateLost,
                message: "gone".into(),
            },
            vec![],
        ),
        case(
            &FromLane::Power {
                power: PowerInfo {
                    on_battery: Some(true),
                    battery_level: Some(0.15),
                    saves_data: true,
                    hidden: true,
                    share: 0.125,
                },
            },
            vec![],
        ),
        case(&FromLane::Lost { reason: "the GPU is lost".into() }, vec![]),
        case(&FromLane::Bye { reason: "stopped".into() }, vec![]),
    ]
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "0.1.0".into(),
        page: "c3".repeat(8),
        lane: 0,
        backend: Backend::Webgpu,
        browser: BrowserInfo {
            name: "Chromium".into(),
            version: "147.0.1.2".into(),
            platform: "Linux".into(),
            mobile: false,
        },
        machine: MachineInfo { cores: 2, memory_gib: Some(8.0), cross_origin_isolated: true },
        webgpu: WebGpuInfo::Available {
            vendor: "google".into(),
            architecture: "swiftshader".into(),
            device: String::new(),
            description: String::new(),
            fallback: true,
            features: vec!["timestamp-query".into()],
            limits: [("maxBufferSize".to_owned(), 1_073_741_824.0)].into(),
        },
        webnn: WebNnInfo::Missing { reason: "no navigator.ml".into() },
        wasm: WasmInfo { simd: true, threads: 2, jspi: true },
        storage: StorageInfo { kind: StorageKind::Opfs, quota_bytes: Some(1 << 34), used_bytes: 0 },
        power: PowerInfo { on_battery: Some(false), battery_level: Some(1.0), ..PowerInfo::FULL },
        resume: Some(Resume { session: "a1".repeat(16), requests: vec![5] }),
    }
}

/// Frames that both sides have to refuse.
fn refused() -> Vec<Value> {
    let frame = |json: &str, body: &[u8]| {
        let mut frame = (json.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(json.as_bytes());
        frame.resize(frame.len().next_multiple_of(8), 0);
        frame.extend_from_slice(body);
        hex(&frame)
    };
    let ping = r#"{"type":"ping","nonce":1}"#;
    let start = |id: u32, body_len: u64| {
        format!(r#"{{"frame":"start","id":{id},"bodyLen":{body_len},"message":{ping}}}"#)
    };
    let apart = |apart: u64, body_len: u64| {
        format!(
            r#"{{"frame":"start","id":1,"bodyLen":{body_len},"apart":{apart},"message":{ping}}}"#
        )
    };
    vec![
        json!({ "why": "empty", "frames": [""] }),
        json!({ "why": "shorter than its length field", "frames": ["0100"] }),
        json!({ "why": "header longer than the frame", "frames": ["ff00000000000000"] }),
        json!({ "why": "header longer than the limit", "frames": ["ffffffff00000000"] }),
        json!({ "why": "header is not JSON", "frames": [frame("{", &[])] }),
        json!({ "why": "neither start nor rest", "frames": [frame(r#"{"frame":"end","id":1}"#, &[])] }),
        json!({ "why": "further frame of a message that has not begun", "frames": [frame(r#"{"frame":"rest","id":1}"#, &[1])] }),
        json!({ "why": "more body than announced", "frames": [frame(&start(1, 0), &[1])] }),
        json!({ "why": "bytes apart, and others behind the header", "frames": [frame(&apart(1, 9), &[1])] }),
        json!({ "why": "fewer bytes apart than announced", "frames": [frame(&apart(3, 9), &[]), "0102"] }),
        json!({ "why": "more bytes apart than a frame may have", "frames": [frame(&apart(1 << 30, 1 << 30), &[])] }),
        json!({ "why": "more bytes apart than the message has", "frames": [frame(&apart(3, 2), &[]), "010203"] }),
        json!({ "why": "announces more body than any message may have", "frames": [frame(&start(1, 1 << 40), &[1])] }),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
