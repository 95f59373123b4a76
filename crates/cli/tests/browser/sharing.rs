//! Models that have something in common, run by the pool in a real browser: what they share is
//! computed and held once, and every answer has the bits of a run alone in the same browser.

use std::sync::Arc;
use std::time::Duration;

use holdfast_browsers::{GuardCommand, Kind};
use holdfast_devices::lane::Lane;
use holdfast_devices::{Device, ModelKind, Stats};
use holdfast_graph::share::Prices;
use holdfast_graph::{DataType, Dim, Model, Tensor, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_pool::{
    Answer, BrowserOptions, Home, Pool, PoolOptions, Priority, Request, Reused, Workload,
};
use holdfast_predict::{Goal, Strategy};
use holdfast_server::{Server, ServerOptions};
use holdfast_tensors::{Key, Span};
use holdfast_testkit::random::mutate;
use holdfast_testkit::synth::{Options, synth};
use holdfast_wire::Backend;

use crate::rig::{unpacked, within};

/// A pool with a browser of one lane for each backend.
struct Scene {
    pool: Arc<Pool>,
    backend: Backend,
    store: Arc<Store>,
    server: Server,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn new(backend: Backend) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let program = env!("CARGO_BIN_EXE_holdfast").into();
        let guard = GuardCommand { program, arguments: vec!["guard".into()] };
        let browser = BrowserOptions {
            kinds: vec![Kind::Packaged],
            ..BrowserOptions::new(unpacked(), guard)
        };
        // Everything that can be shared is, so that small models will do.
        let options = PoolOptions {
            browser: Some(browser),
            prices: Prices::free(),
            // Shown where a test fails: what it was at.
            progress: Arc::new(|text| println!("{text}")),
            ..PoolOptions::default()
        };
        let pool = Arc::new(Pool::new(store.clone(), options).unwrap());
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let options = ServerOptions { address, ..ServerOptions::default() };
        let server = Server::start(pool.lanes().clone(), options).await.unwrap();
        pool.open_door(server.join_link());
        Scene { pool, backend, store, server, folder }
    }

    /// Imports a family, with what to ask each member for.
    fn family(&self, kind: &str, count: usize) -> Vec<Request> {
        self.import(&family(kind, count))
    }

    /// Imports models, with what to ask each for.
    fn import(&self, models: &[Model]) -> Vec<Request> {
        let request = |(number, model): (usize, &Model)| {
            let path = self.folder.path().join(format!("model-{number}.onnx"));
            std::fs::write(&path, encode(model)).unwrap();
            let imported = self.store.import(&path, &ImportOptions::default(), &mut |_| ());
            let graph = imported.unwrap().manifest.components[0].graph.clone();
            self.request(&graph, model, 1)
        };
        models.iter().enumerate().map(request).collect()
    }

    fn request(&self, graph: &StoredGraph, model: &Model, seed: i64) -> Request {
        Request {
            model: "test".to_owned(),
            graph: graph.clone(),
            kind: ModelKind::Text,
            inputs: model.inputs().iter().map(|v| (v.name.clone(), sample(v, seed))).collect(),
            choices: self.backend.name().parse().unwrap(),
            priority: Priority::Normal,
            share: true,
            namespace: String::new(),
            deadline: None,
        }
    }

    /// Runs them together, and each alone; the bits have to be the same.
    async fn check(&self, requests: &[Request]) -> Vec<Answer> {
        let limit = Duration::from_secs(400);
        let together = tokio::time::timeout(limit, self.pool.run_concurrent(requests));
        let together = together.await.expect("no answers in time");
        let mut answers = Vec::new();
        for (request, answer) in requests.iter().zip(together) {
            let answer = answer.unwrap();
            let alone = Request { share: false, ..request.clone() };
            let alone = within("an answer", self.pool.run(&alone)).await.unwrap();
            assert_eq!(answer.outcome.device.backend, self.backend.name());
            assert_same(&answer, &alone);
            answers.push(answer);
        }
        assert_eq!(self.pool.metrics().refused_plans, Vec::<String>::new());
        answers
    }

    /// What the lane itself says that it holds.
    async fn stats(&self) -> Stats {
        let lane = within("the lane", self.pool.lane(self.backend)).await.unwrap();
        lane.stats().await.unwrap()
    }

    async fn close(self) {
        within("the pool to close", self.pool.close()).await;
        self.server.stop(Duration::ZERO).await;
    }
}

fn family(kind: &str, count: usize) -> Vec<Model> {
    let members = synth(kind.parse().unwrap(), &Options { count, ..Options::default() }).unwrap();
    members.into_iter().map(|member| member.model).collect()
}

/// An input of any model of a family: few tokens, all of them looked at.
fn sample(value: &holdfast_graph::Value, seed: i64) -> Tensor {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size,
        Dim::Named(name) if name.contains("batch") => 1,
        Dim::Named(name) if name == "past_sequence" => 4,
        Dim::Named(name) if name == "total_sequence" => 12,
        Dim::Named(_) | Dim::Unknown => 8,
    };
    let dims: Vec<usize> = value.dims.as_ref().unwrap().iter().map(size).collect();
    let count = dims.iter().product::<usize>() as i64;
    match (value.dtype.unwrap(), value.name.as_str()) {
        (DataType::F32, _) => {
            let values: Vec<f32> =
                (0..count).map(|i| ((i * 37 + seed) % 19) as f32 / 19.0).collect();
            Tensor::from_slice(&dims, &values).unwrap()
        }
        (DataType::I64, "attention_mask") => {
            Tensor::from_slice(&dims, &vec![1i64; count as usize]).unwrap()
        }
        (DataType::I64, "token_type_ids") => Tensor::zeros(DataType::I64, &dims).unwrap(),
        (DataType::I64, "position_ids") => {
            Tensor::from_slice(&dims, &(0..count).collect::<Vec<i64>>()).unwrap()
        }
        (DataType::I64, _) => {
            let values: Vec<i64> = (0..count).map(|i| (seed + i * 7) % 250).collect();
            Tensor::from_slice(&dims, &values).unwrap()
        }
        (other, name) => panic!("no sample of {other} for `{name}`"),
    }
}

/// Three heads on one trunk: it is computed once for all of them, and not again for an input that
/// was seen.
async fn heads_share_a_trunk(backend: Backend) {
    let scene = Scene::new(backend).await;
    let requests = scene.family("heads", 3);
    let answers = scene.check(&requests).await;
    let reusing = answers.iter().filter(|answer| answer.reused.tensors > 0).count();
    assert_eq!(reusing, 2, "one computes the trunk, two do not");
    let again = |request: &Request, first: i64| {
        let mut request = request.clone();
        let ids = request.inputs.iter_mut().find(|(name, _)| name == "input_ids").unwrap();
        let values: Vec<i64> = (0..8).map(|index| (first + index * 3) % 250).collect();
        ids.1 = Tensor::from_slice(&[1, 8], &values).unwrap();
        request
    };
    let first = within("an answer", scene.pool.run(&again(&requests[0], 77))).await.unwrap();
    assert_eq!(first.reused, Reused::default(), "an input that nobody has seen");
    let second = within("an answer", scene.pool.run(&again(&requests[1], 77))).await.unwrap();
    assert!(second.reused.tensors > 0 && second.reused.bytes > 0, "{:?}", second.reused);
    assert!(scene.stats().await.tensors > 0, "what was computed stays in the browser");
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_share_a_trunk_on_wasm() {
    heads_share_a_trunk(Backend::Wasm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_share_a_trunk_on_webgpu() {
    heads_share_a_trunk(Backend::Webgpu).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_share_a_trunk_on_webnn() {
    heads_share_a_trunk(Backend::Webnn).await;
}

/// Ever more models are asked for, and then ever fewer, while requests are under way: none is lost,
/// and every answer has the bits of a run alone, by whichever plan it went.
async fn models_come_and_go_while_requests_are_answered(backend: Backend) {
    let scene = Scene::new(backend).await;
    let requests = scene.family("heads", 3);
    let mut alone = Vec::new();
    for request in &requests {
        let request = Request { share: false, ..request.clone() };
        alone.push(within("an answer", scene.pool.run(&request)).await.unwrap());
    }
    let mut asking = tokio::task::JoinSet::new();
    for models in [1, 2, 3, 2, 1] {
        if models == 2 {
            // As if nobody had asked for them for long.
            within("models to be forgotten", scene.pool.forget_models()).await;
        }
        for _ in 0..4 {
            for (number, request) in requests.iter().enumerate().take(models) {
                let (pool, request) = (scene.pool.clone(), request.clone());
                asking.spawn(async move { (number, pool.run(&request).await.unwrap()) });
            }
        }
        while asking.len() > 2 {
            let (number, answer) = within("an answer", asking.join_next()).await.unwrap().unwrap();
            assert_same(&answer, &alone[number]);
        }
    }
    for (number, answer) in within("the rest", asking.join_all()).await {
        assert_same(&answer, &alone[number]);
    }
    let answers = scene.check(&requests).await;
    assert!(answers.iter().any(|answer| answer.reused.tensors > 0), "in the end they share");
    scene.close().await;
}

fn assert_same(one: &Answer, other: &Answer) {
    for (one, other) in one.outcome.outputs.iter().zip(&other.outcome.outputs) {
        assert_eq!(one.name, other.name);
        assert!(one.tensor == other.tensor, "`{}` differs from a run alone", one.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_come_and_go_while_requests_are_answered_on_wasm() {
    models_come_and_go_while_requests_are_answered(Backend::Wasm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_come_and_go_while_requests_are_answered_on_webgpu() {
    models_come_and_go_while_requests_are_answered(Backend::Webgpu).await;
}

/// What models hold together, and each on its own, in bytes of weights.
async fn weights_held(backend: Backend, models: &[Model]) -> (u64, u64) {
    let scene = Scene::new(backend).await;
    let requests = scene.import(models);
    let limit = Duration::from_secs(400);
    let together = tokio::time::timeout(limit, scene.pool.run_concurrent(&requests)).await;
    together.expect("no answers in time").into_iter().for_each(|answer| drop(answer.unwrap()));
    let held = |scene: &Scene| {
        let devices = scene.pool.metrics().devices;
        devices.iter().filter(|d| d.backend == backend.name()).map(|d| d.weight_bytes).sum::<u64>()
    };
    let shared = held(&scene);
    let mut apart = 0;
    for request in &requests {
        let alone = Request { share: false, ..request.clone() };
        let answer = within("an answer", scene.pool.run(&alone)).await.unwrap();
        apart += answer.loaded.weight_bytes;
    }
    scene.check(&requests).await;
    scene.close().await;
    (shared, apart)
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_hold_their_base_once_on_wasm() {
    let (shared, apart) = weights_held(Backend::Wasm, &family("adapters", 3)).await;
    assert!(shared * 2 < apart, "{shared} bytes instead of {apart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_hold_their_base_once_on_webgpu() {
    let (shared, apart) = weights_held(Backend::Webgpu, &family("adapters", 3)).await;
    assert!(shared * 2 < apart, "{shared} bytes instead of {apart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_and_its_twin_with_a_past_hold_their_weights_once_on_wasm() {
    let (shared, apart) = weights_held(Backend::Wasm, &family("decoder-twins", 2)).await;
    assert!(shared * 3 < apart * 2, "{shared} bytes instead of {apart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_and_its_twin_with_a_past_hold_their_weights_once_on_webgpu() {
    let (shared, apart) = weights_held(Backend::Webgpu, &family("decoder-twins", 2)).await;
    assert!(shared * 3 < apart * 2, "{shared} bytes instead of {apart}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_and_a_twin_that_differs_by_one_bit_hold_each_their_own_on_wasm() {
    let [model, twin]: [Model; 2] = family("decoder-twins", 2).try_into().unwrap();
    let changed = (0..5000).find_map(|seed| {
        let mutation = mutate::flip_weight_bit(&twin, seed)?;
        mutation.what.contains("embed_tokens").then_some(mutation.model)
    });
    let (before, apart) = weights_held(Backend::Wasm, &[model.clone(), twin]).await;
    let changed = changed.expect("some seed picks it");
    let (after, _) = weights_held(Backend::Wasm, &[model, changed]).await;
    assert!(before < after && after <= apart, "{before}, then {after} bytes of {apart}");
}

/// Bytes that a caller shares go to the browser's own memory and come back as they were.
async fn shared_tensors_live_in_the_browser(backend: Backend) {
    let scene = Scene::new(backend).await;
    let lane = within("the lane", scene.pool.lane(backend)).await.unwrap();
    let (tensors, home) = (scene.pool.tensors(), Home::Device(lane.info().name.clone()));
    let values: Vec<f32> = (0..600).map(|value| value as f32 / 7.0).collect();
    let tensor = Tensor::from_slice(&[20, 30], &values).unwrap();
    let id = tensors.with(&Home::Host, |m| m.register("t", tensor.clone().into())).await;
    let id = id.unwrap().unwrap();
    let there = within("a copy", tensors.copy(&Home::Host, id, &home, Key::new("", "t"))).await;
    let there = there.unwrap();
    let place = tensors.with(&home, |m| m.tensor(there).unwrap().storage().name()).await;
    let place = place.unwrap();
    let expected = if backend == Backend::Wasm { "cpu" } else { backend.name() };
    assert_eq!(place, expected);
    let before = lane.stats().await.unwrap();
    assert!(before.tensors >= 1 && before.tensor_bytes >= 2400, "{before:?}");
    // Where it is said to be, not in the memory of the page.
    let on_device = if backend == Backend::Wasm { 0 } else { 2400 };
    assert_eq!(before.device_tensor_bytes, on_device);
    let spans = [Span::new(3, 5).every(2), Span::new(1, 7)];
    let view = tensors.with(&home, |m| m.create_view(there, "view", &spans)).await.unwrap();
    let view = view.unwrap();
    let part = within("a view", tensors.copy(&home, view, &Home::Host, Key::new("", "v"))).await;
    let part = part.unwrap();
    let part = tensors.with(&Home::Host, |m| m.tensor(part).unwrap().to_tensor()).await.unwrap();
    let shown = (0..5).flat_map(|row| (1..8).map(move |column| (3 + 2 * row) * 30 + column));
    let shown: Vec<f32> = shown.map(|at: usize| values[at]).collect();
    assert_eq!(part.unwrap().to_vec::<f32>().unwrap(), shown);
    // A copy of it there is one of its own, and on the device as well.
    let copy = within("a copy", tensors.copy(&home, view, &home, Key::new("", "copy"))).await;
    let copy = copy.unwrap();
    let stats = lane.stats().await.unwrap();
    assert_eq!((stats.tensors, stats.tensor_bytes), (before.tensors + 1, 2400 + 140));
    assert_eq!(stats.device_tensor_bytes, if backend == Backend::Wasm { 0 } else { 2540 });
    let again = within("a copy", tensors.copy(&home, copy, &Home::Host, Key::new("", "v"))).await;
    let again = again.unwrap();
    let again = tensors.with(&Home::Host, |m| m.tensor(again).unwrap().to_tensor()).await.unwrap();
    assert_eq!(again.unwrap().to_vec::<f32>().unwrap(), shown);
    within("the copy to go", tensors.with(&home, |m| m.free(copy))).await.unwrap().unwrap();
    every_type_lives_there(&scene, &lane, backend).await;
    let back = within("a copy", tensors.copy(&home, there, &Home::Host, Key::new("", "b"))).await;
    let back = back.unwrap();
    let read = tensors.with(&Home::Host, |m| m.tensor(back).unwrap().to_tensor()).await.unwrap();
    assert_eq!(read.unwrap(), tensor);
    within("the tensor to go", tensors.with(&home, |m| m.free(there))).await.unwrap().unwrap();
    assert_eq!(lane.stats().await.unwrap().tensors, before.tensors - 1);
    scene.close().await;
}

/// Bytes are bytes: what no model can be fed lies there too.
async fn every_type_lives_there(scene: &Scene, lane: &Lane, backend: Backend) {
    let (tensors, home) = (scene.pool.tensors(), Home::Device(lane.info().name.clone()));
    for dtype in [DataType::Bf16, DataType::F64, DataType::I16, DataType::U4, DataType::I2] {
        let len = dtype.byte_len(9).unwrap() as usize;
        let tensor = Tensor::new(dtype, vec![9], vec![1; len].into()).unwrap();
        let id = tensors.with(&Home::Host, |m| m.register("any", tensor.clone().into())).await;
        let id = id.unwrap().unwrap();
        let before = lane.stats().await.unwrap().device_tensor_bytes;
        let there = within("a copy", tensors.copy(&Home::Host, id, &home, Key::new("", "any")));
        let there = there.await.unwrap();
        let on_device = if backend == Backend::Wasm { 0 } else { len as u64 };
        assert_eq!(lane.stats().await.unwrap().device_tensor_bytes, before + on_device, "{dtype}");
        let back = within("a copy", tensors.copy(&home, there, &Home::Host, Key::new("", "b")));
        let back = back.await.unwrap();
        let back = tensors.with(&Home::Host, |m| m.tensor(back).unwrap().to_tensor()).await;
        assert_eq!(back.unwrap().unwrap(), tensor);
        within("the tensor to go", tensors.with(&home, |m| m.free(there))).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_tensors_live_in_the_browser_on_every_backend() {
    for backend in [Backend::Wasm, Backend::Webgpu, Backend::Webnn] {
        shared_tensors_live_in_the_browser(backend).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_in_a_browser_is_predicted_run_in_every_way_and_learned_from() {
    let scene = Scene::new(Backend::Wasm).await;
    let requests = scene.family("heads", 2);
    let workload = Workload { requests: requests.clone(), goal: Goal::Latency };
    let before = within("a forecast", scene.pool.forecast(&workload)).await.unwrap();
    assert_eq!(before.choice.to_string(), "wasm");
    let (mix, estimate) = before.of(Strategy::Parallel).unwrap();
    assert!(mix.device.rates.is_some(), "a lane is measured when it joins");
    assert!(mix.stages.iter().flatten().flat_map(|job| &job.pieces).all(|piece| !piece.resident));
    assert!(estimate.latency_seconds.low > 0.0);

    let compared = within("a comparison", scene.pool.compare(&workload, 2)).await.unwrap();
    assert_eq!(compared.ways.len(), Strategy::ALL.len());
    for way in compared.ways.iter().chain(&compared.unshared) {
        assert_eq!(way.runs.len(), 2);
    }
    let done = scene.pool.execute(&workload, None).await.unwrap();
    // The browser is ours, so its memory can be told.
    assert!(done.measured.memory_bytes.unwrap() > 50e6);
    assert!(!done.loaded, "everything was loaded by then");
    assert!(done.answers.iter().all(|answer| answer.outcome.device.backend == "wasm"));
    scene.check(&requests).await;
    let after = scene.pool.forecast(&workload).await.unwrap();
    assert!(after.of(Strategy::Sequential).unwrap().1.observations > 0);
    scene.close().await;
}
