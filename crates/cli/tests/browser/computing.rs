//! Right answers on every backend, and errors that say what is wrong.

use holdfast_devices::cpu::Target;
use holdfast_devices::lane::Lane;
use holdfast_devices::{
    Device, ErrorKind, Input, Output, Program, RequestId, Segment, Step, TensorId,
};
use holdfast_graph::{DataType, Tensor};
use holdfast_testkit::{Builder, fixed, named};
use holdfast_wire::Backend;

use crate::rig::{MINILM, Named, Rig, assert_close, program, run, tiny_bert, within};

#[path = "../../../devices/tests/common/inputs.rs"]
#[allow(dead_code, reason = "only a part of it is for this test")]
pub(crate) mod inputs;

#[tokio::test(flavor = "multi_thread")]
async fn minilm_on_webassembly() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Wasm).await;
    let info = lane.info();
    assert_eq!((info.backend.as_str(), info.accelerated), ("wasm", false));
    assert!(info.engine.contains("Chromium 147"), "{}", info.engine);

    let graph = rig.import_third_party(MINILM);
    let segment = rig.segment(&graph, Target::Wasm, &[]).await;
    let loaded = within("a load", lane.load(segment.clone())).await.unwrap();
    assert!(loaded.downloaded_bytes > 80_000_000, "{}", loaded.downloaded_bytes);
    assert_eq!(loaded.new_weight_bytes, loaded.weight_bytes);
    for tokens in [1, 12, 40] {
        let inputs = inputs::minilm_inputs(2, tokens);
        let found = run(&lane, &loaded, &inputs).await;
        assert_close(&found, &rig.expected(&graph, &inputs).await, 1e-4);
    }
    let again = within("a load", lane.load(segment)).await.unwrap();
    assert_eq!((again.new_weight_bytes, again.downloaded_bytes), (0, 0));

    let stats = lane.stats().await.unwrap();
    assert_eq!((stats.segments, stats.succeeded, stats.failed), (1, 3, 0));
    lane.unload(loaded.id).await.unwrap();
    assert_eq!(lane.stats().await.unwrap().segments, 0);
    browser.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_backend_gives_the_right_answer_and_keeps_tensors() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let graph = rig.import("bert", &tiny_bert());
    let inputs = bert_inputs(&rig, &graph);
    let expected = rig.expected(&graph, &inputs).await;
    for (backend, target) in [
        (Backend::Wasm, Target::Wasm),
        (Backend::Webgpu, Target::WebGpu),
        (Backend::Webnn, Target::WebNn),
    ] {
        let lane = rig.lane(backend).await;
        let dims = [("batch", 1), ("sequence", 8)];
        let segment = rig.segment(&graph, target, &dims).await;
        let loaded = within("a load", lane.load(segment)).await.unwrap();
        assert_eq!(loaded.first_run.is_some(), backend != Backend::Wasm, "{backend:?}");
        assert_close(&run(&lane, &loaded, &inputs).await, &expected, 1e-3);
        keeps_tensors(&rig, &lane).await;
        let measured = within("a calibration", lane.calibrate()).await.unwrap();
        assert!(measured.matmul_flops > 0.0);
        assert!(!lane.info().accelerated, "this machine has no accelerator: {:?}", lane.info());
    }
    let software = rig.lane(Backend::Webgpu).await.info().adapter.clone();
    assert!(software.contains("software adapter"), "{software}");
    browser.close().await.unwrap();
}

/// A counter that grows on the device: `y = x + 1`, kept as the next `x`.
pub(crate) async fn keeps_tensors(rig: &Rig, lane: &Lane) {
    let graph = rig.import("increment", &increment());
    let segment = rig.segment(&graph, lane.target(), &[]).await;
    let loaded = within("a load", lane.load(segment)).await.unwrap();
    let counter = TensorId("counter".to_owned());
    let zero = Tensor::from_slice(&[2], &[0f32, 10.0]).unwrap();
    lane.put(counter.clone(), zero).await.unwrap();
    let step = |from, to| Step {
        segment: loaded.id,
        inputs: vec![("x".to_owned(), from)],
        outputs: vec![("y".to_owned(), to)],
    };
    for number in 0..3 {
        let steps = vec![
            step(Input::Kept(counter.clone()), Output::Return),
            step(
                Input::Step { step: 0, output: "y".to_owned() },
                Output::ReturnAndKeep(counter.clone()),
            ),
        ];
        let request = RequestId(format!("count {number}"));
        let outcome = lane.run(Program { request, deadline: None, steps }).await.unwrap();
        assert_eq!(outcome.kept.iter().map(|kept| kept.byte_len()).collect::<Vec<_>>(), [8]);
        let values: Vec<Vec<f32>> =
            outcome.outputs.iter().map(|output| output.tensor.to_vec().unwrap()).collect();
        let start = 2.0 * number as f32;
        assert_eq!(values, [[start + 1.0, start + 11.0], [start + 2.0, start + 12.0]]);
    }
    let kept = lane.get(&counter).await.unwrap();
    assert_eq!(kept.to_vec::<f32>().unwrap(), [6.0, 16.0]);
    lane.drop_tensor(&counter).await.unwrap();
    assert_eq!(lane.get(&counter).await.unwrap_err().kind(), ErrorKind::Caller);
    lane.unload(loaded.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_said() {
    let rig = Rig::new().await;
    let browser = rig.browser().await;
    let lane = rig.lane(Backend::Wasm).await;
    let graph = rig.import("increment", &increment());
    let loaded = lane.load(rig.segment(&graph, Target::Wasm, &[]).await).await.unwrap();

    let wrong_shape: Named =
        [("x".to_owned(), Tensor::from_slice(&[3], &[0f32; 3]).unwrap())].into();
    let error = lane.run(program(&loaded, &wrong_shape)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Caller);
    assert!(error.to_string().contains("input `x` of step 0 is f32[2]"), "{error}");

    let unknown = Segment { dims: [("n".to_owned(), 9)].into(), ..Segment::new(graph) };
    assert_eq!(lane.unload(unknown.id()).await.unwrap_err().kind(), ErrorKind::Caller);

    // No backend in a browser has this operator; the error says which one it is.
    let strange = rig.import("strange", &unsupported());
    let webgpu = rig.lane(Backend::Webgpu).await;
    let error = webgpu.load(Segment::new(strange)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(error.to_string().contains("Det"), "{error}");
    browser.close().await.unwrap();
}

pub(crate) fn increment() -> holdfast_graph::Model {
    let mut builder = Builder::new("increment", 0);
    builder.input("x", DataType::F32, &[fixed(2)]);
    let one = builder.initializer("one", &Tensor::from_slice(&[1], &[1f32]).unwrap());
    let sum = builder.node("Add", &["x", &one], &[]);
    builder.output("y", &sum, DataType::F32, &[fixed(2)]);
    builder.finish().unwrap()
}

pub(crate) fn unsupported() -> holdfast_graph::Model {
    let mut builder = Builder::new("strange", 0);
    builder.input("x", DataType::F32, &[named("n"), named("n")]);
    let determinant = builder.node("Det", &["x"], &[]);
    builder.output("y", &determinant, DataType::F32, &[]);
    builder.finish().unwrap()
}

/// Tokens for the tiny model.
pub(crate) fn bert_inputs(rig: &Rig, graph: &holdfast_models::StoredGraph) -> Named {
    inputs::sample(&rig.declared(graph), &[("batch", 1), ("sequence", 8)], 7)
}
