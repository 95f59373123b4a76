//! What breaks is an error of the right kind, never a result, and the lane serves again.

use std::time::Duration;

use holdfast_devices::cpu::Target;
use holdfast_devices::lane::{Lane, LaneOptions};
use holdfast_devices::{
    Device, ErrorKind, Event, Input, Output, Program, RequestId, Segment, Step, TensorId,
};
use holdfast_devtools::{DevTools, Target as Place};
use holdfast_graph::{DataType, Tensor};
use holdfast_testkit::{Builder, fixed, named};
use holdfast_wire::Backend;
use serde_json::json;
use tokio::sync::broadcast;

use crate::computing::bert_inputs;
use crate::proxy::Proxy;
use crate::returning::kill;
use crate::rig::{Named, Rig, assert_close, program, run, tiny_bert, within};

/// A lane with the tiny model on it.
struct Loaded {
    rig: Rig,
    lane: Lane,
    segment: Segment,
    inputs: Named,
    expected: Named,
}

impl Loaded {
    async fn new(rig: Rig, backend: Backend, target: Target) -> Loaded {
        let graph = rig.import("bert", &tiny_bert());
        let inputs = bert_inputs(&rig, &graph);
        let expected = rig.expected(&graph, &inputs).await;
        let segment = rig.segment(&graph, target, &[]).await;
        let lane = rig.lane(backend).await;
        let loaded = Loaded { rig, lane, segment, inputs, expected };
        loaded.serves().await;
        loaded
    }

    /// Loads the model if it is not there, and checks its answer.
    async fn serves(&self) {
        let loaded = within("a load", self.lane.load(self.segment.clone())).await.unwrap();
        assert_close(&run(&self.lane, &loaded, &self.inputs).await, &self.expected, 1e-3);
    }

    /// A run that may fail.
    async fn attempt(&self, deadline: Duration) -> Result<(), ErrorKind> {
        let outputs = vec!["last_hidden_state".to_owned()];
        let request = format!("attempt {deadline:?}");
        let inputs = self.inputs.clone();
        let program = Program::single(request, self.segment.id(), inputs, outputs);
        let outcome = self.lane.run(Program { deadline: Some(deadline), ..program }).await;
        outcome.map(drop).map_err(|error| error.kind())
    }

    async fn devtools(&self) -> (DevTools, Place) {
        let devtools = DevTools::connect(&self.rig.profile()).await.unwrap();
        // Lanes that were asked nothing have no engine yet, so there is only this one.
        let engine = devtools.target("worker", "engine-worker").await.unwrap();
        (devtools, engine)
    }
}

async fn lost(events: &mut broadcast::Receiver<Event>) -> String {
    let lost = async {
        loop {
            if let Ok(Event::Lost { reason }) = events.recv().await {
                return reason;
            }
        }
    };
    within("the loss to be told", lost).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_gpu_device_is_never_a_result() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let loaded = Loaded::new(rig, Backend::Webgpu, Target::WebGpu).await;
    let mut events = loaded.lane.events();
    let kept = TensorId("hidden".to_owned());
    let (devtools, engine) = loaded.devtools().await;
    destroy_device(&devtools, &engine).await;

    // Not even for an output that would stay on the device.
    let steps = vec![Step {
        segment: loaded.segment.id(),
        inputs: loaded.inputs.clone().into_iter().map(|(n, t)| (n, Input::Inline(t))).collect(),
        outputs: vec![("last_hidden_state".to_owned(), Output::Keep(kept.clone()))],
    }];
    let request = RequestId("keep".to_owned());
    let error = loaded.lane.run(Program { request, deadline: None, steps }).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Device | ErrorKind::StateLost), "{error}");
    lost(&mut events).await;
    assert_eq!(loaded.lane.get(&kept).await.unwrap_err().kind(), ErrorKind::Caller);
    let error = loaded.attempt(Duration::from_secs(30)).await.unwrap_err();
    assert_eq!(error, ErrorKind::StateLost);
    loaded.serves().await;
    browser.close().await.unwrap();
}

/// Has a worker do this before it looks at anything that is sent to it from now on.
async fn busy(devtools: &DevTools, worker: &Place, what: &str) {
    let script = format!(
        "const {{ port1, port2 }} = new MessageChannel();
         port1.onmessage = () => {{ {what} }};
         port2.postMessage(0);"
    );
    devtools.evaluate(worker, &format!("{{ {script} }}")).await.unwrap();
}

/// Destroys every GPU device of a worker.
async fn destroy_device(devtools: &DevTools, worker: &Place) {
    let prototype = json!({ "expression": "GPUDevice.prototype" });
    let prototype = devtools.call(Some(worker), "Runtime.evaluate", prototype).await.unwrap();
    let of = json!({ "prototypeObjectId": prototype["result"]["objectId"] });
    let devices = devtools.call(Some(worker), "Runtime.queryObjects", of).await.unwrap();
    let destroyed = devtools
        .call(
            Some(worker),
            "Runtime.callFunctionOn",
            json!({
                "objectId": devices["objects"]["objectId"],
                "functionDeclaration": "function () { for (const d of this) d.destroy(); return this.length; }",
                "returnByValue": true,
            }),
        )
        .await
        .unwrap();
    assert!(destroyed["result"]["value"].as_u64().unwrap() > 0, "{destroyed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gpu_process_is_an_error_and_the_lane_serves_again() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let loaded = Loaded::new(rig, Backend::Webgpu, Target::WebGpu).await;
    let mut events = loaded.lane.events();
    let gpu = browser.processes().into_iter().find(|process| process.role == "gpu-process");
    kill(gpu.expect("a GPU process").pid);
    let outcome = loaded.attempt(Duration::from_secs(60)).await;
    assert!(matches!(outcome, Err(ErrorKind::Device | ErrorKind::StateLost)), "{outcome:?}");
    lost(&mut events).await;
    loaded.serves().await;
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_engine_is_replaced_after_its_deadline() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let loaded = Loaded::new(rig, Backend::Wasm, Target::Wasm).await;
    let mut events = loaded.lane.events();
    let (devtools, engine) = loaded.devtools().await;
    busy(&devtools, &engine, "for (;;);").await;
    let outcome = loaded.attempt(Duration::from_secs(1)).await;
    assert_eq!(outcome, Err(ErrorKind::Timeout));
    // The lane still hears: it is the engine that hangs.
    assert!(loaded.lane.is_connected());
    loaded.lane.stats().await.unwrap();
    lost(&mut events).await;
    assert_eq!(loaded.attempt(Duration::from_secs(30)).await, Err(ErrorKind::StateLost));
    loaded.serves().await;
    assert_eq!(loaded.lane.diagnostics().engine_restarts, 1);
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_line_resumes_with_everything_that_was_there() {
    let rig = Rig::new().await;
    let proxy = Proxy::start(rig.server.address()).await;
    let browser = rig.browser_at(&proxy.link(&rig.server.join_link())).await;
    let loaded = Loaded::new(rig, Backend::Wasm, Target::Wasm).await;
    let id = TensorId("kept".to_owned());
    let tensor = loaded.expected["last_hidden_state"].clone();
    loaded.lane.put(id.clone(), tensor.clone()).await.unwrap();
    let mut events = loaded.lane.events();
    for _ in 0..3 {
        let asked = loaded.lane.load(loaded.segment.clone()).await.unwrap();
        let running = loaded.lane.run(program(&asked, &loaded.inputs));
        let cut = async { proxy.cut() };
        let (outcome, ()) = tokio::join!(within("an answer over a cut line", running), cut);
        let found: Named =
            outcome.unwrap().outputs.into_iter().map(|o| (o.name, o.tensor)).collect();
        assert_close(&found, &loaded.expected, 1e-4);
    }
    let cut = async { while !matches!(events.recv().await, Ok(Event::Reconnected)) {} };
    within("the lane to come back", cut).await;
    assert_eq!(loaded.lane.get(&id).await.unwrap(), tensor);
    assert_eq!(loaded.lane.diagnostics().engine_restarts, 0);
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_stays_cut_is_state_lost_after_the_grace() {
    let grace = Duration::from_secs(1);
    let rig = Rig::with(LaneOptions { grace, ..LaneOptions::default() }).await;
    let proxy = Proxy::start(rig.server.address()).await;
    let browser = rig.browser_at(&proxy.link(&rig.server.join_link())).await;
    let loaded = Loaded::new(rig, Backend::Wasm, Target::Wasm).await;
    proxy.set_open(false);
    proxy.cut();
    let outcome = loaded.attempt(Duration::from_secs(60)).await;
    assert_eq!(outcome, Err(ErrorKind::StateLost));
    assert!(loaded.lane.gone().unwrap().contains("did not come back"));
    // When the line is back, the page joins as a new lane.
    proxy.set_open(true);
    let lane = loaded.rig.lane(Backend::Wasm).await;
    assert_ne!(lane.info().name, loaded.lane.info().name);
    Loaded { lane, ..loaded }.serves().await;
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_a_memory_error_and_the_lane_serves_again() {
    let tensor_bytes = 1 << 20;
    let rig = Rig::with(LaneOptions { tensor_bytes, ..LaneOptions::default() }).await;
    let browser = rig.browser().await;
    let large = rig.import("large", &zeros_of_any_size());
    // More bytes than 32 bits can count, and than a buffer of the GPU may have.
    let too_many: [(_, _, &[i64]); 2] = [
        (Backend::Wasm, Target::Wasm, &[2 << 30]),
        (Backend::Webgpu, Target::WebGpu, &[400 << 20, 2 << 30]),
    ];
    for (backend, target, counts) in too_many {
        let lane = rig.lane(backend).await;
        let tensor = Tensor::from_slice(&[1 << 19], &vec![0f32; 1 << 19]).unwrap();
        let error = lane.put(TensorId("large".to_owned()), tensor).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory, "{backend:?}: {error}");

        let segment = rig.segment(&large, target, &[]).await;
        let size = |size: i64| -> Named {
            [("size".to_owned(), Tensor::from_slice(&[1], &[size]).unwrap())].into()
        };
        for &count in counts {
            let loaded = within("a load", lane.load(segment.clone())).await.unwrap();
            let error = lane.run(program(&loaded, &size(count))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Memory, "{backend:?}: {error}");
        }
        let loaded = within("a load", lane.load(segment)).await.unwrap();
        let small = within("a run", lane.run(program(&loaded, &size(3)))).await.unwrap();
        let zeros = small.output("zeros").unwrap().to_vec::<f32>().unwrap();
        assert_eq!(zeros, [0.0; 3], "{backend:?}");
    }
    browser.close().await.unwrap();
}

fn zeros_of_any_size() -> holdfast_graph::Model {
    let mut builder = Builder::new("zeros", 0);
    builder.input("size", DataType::I64, &[fixed(1)]);
    let zero = builder.initializer("zero", &Tensor::from_slice(&[1], &[0f32]).unwrap());
    let zeros = builder.node("Expand", &[&zero, "size"], &[]);
    builder.output("zeros", &zeros, DataType::F32, &[named("n")]);
    builder.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_at_once_and_changes_nothing() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let loaded = Loaded::new(rig, Backend::Wasm, Target::Wasm).await;
    let (devtools, engine) = loaded.devtools().await;
    let asked = loaded.lane.load(loaded.segment.clone()).await.unwrap();
    // The engine stands still, so that the run is surely under way.
    devtools.pause(&engine).await.unwrap();
    let program = program(&asked, &loaded.inputs);
    let request = program.request.clone();
    let cancel = async {
        let running = async {
            while loaded.lane.in_flight() == 0 {
                tokio::task::yield_now().await;
            }
        };
        within("the run to be under way", running).await;
        assert!(loaded.lane.cancel(&request));
        devtools.resume(&engine).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(loaded.lane.run(program), cancel);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(!loaded.lane.cancel(&request));
    loaded.serves().await;
    assert_eq!(loaded.lane.diagnostics().engine_restarts, 0);
    browser.close().await.unwrap();
}
