//! The pool with the in-process engine alone, and what is said where that does not do.

use holdfast_devices::ErrorKind;
use holdfast_devices::ModelKind;
use holdfast_graph::{DataType, Model, Tensor, encode};
use holdfast_models::ImportOptions;
use holdfast_testkit::{Builder, named};

use super::*;
use crate::request::Priority;

fn doubling() -> Model {
    let mut builder = Builder::new("doubling", 0);
    builder.input("x", DataType::F32, &[named("n")]);
    let sum = builder.node("Add", &["x", "x"], &[]);
    builder.output("y", &sum, DataType::F32, &[named("n")]);
    builder.finish().unwrap()
}

/// A pool without a browser, and a request for what doubles its input.
fn pool(folder: &std::path::Path, choices: &str) -> (Pool, Request) {
    pool_with(folder, choices, PoolOptions::default())
}

fn pool_with(folder: &std::path::Path, choices: &str, options: PoolOptions) -> (Pool, Request) {
    let path = folder.join("doubling.onnx");
    std::fs::write(&path, encode(&doubling())).unwrap();
    let store = Arc::new(Store::open(folder.join("home")).unwrap());
    let imported = store.import(&path, &ImportOptions::default(), &mut |_| ()).unwrap();
    let input = Tensor::from_slice(&[2], &[1f32, 2.0]).unwrap();
    let request = Request {
        model: "test".to_owned(),
        graph: imported.manifest.components[0].graph.clone(),
        kind: ModelKind::Other,
        inputs: vec![("x".to_owned(), input)],
        choices: choices.parse().unwrap(),
        priority: Priority::Normal,
        share: true,
        namespace: String::new(),
        deadline: None,
    };
    (Pool::new(store, options).unwrap(), request)
}

#[tokio::test]
async fn what_cannot_be_had_is_passed_over_and_said() {
    let folder = tempfile::tempdir().unwrap();
    for choices in ["cpu", "wasm,cpu", "auto"] {
        let (pool, request) = pool(folder.path(), choices);
        let answer = pool.run(&request).await.unwrap();
        let doubled = answer.outcome.output("y").unwrap();
        assert_eq!(doubled.to_vec::<f32>().unwrap(), [2.0, 4.0]);
        assert_eq!(answer.outcome.device.backend, "cpu");
        let passed_over: Vec<String> =
            answer.passed_over.iter().map(|passed| passed.reason.clone()).collect();
        let expected: Vec<String> = match choices {
            "cpu" => vec![],
            "wasm,cpu" => vec!["no browser with wasm has joined".to_owned()],
            _ => ["webgpu", "webnn"]
                .map(|name| format!("no browser with {name} has joined"))
                .to_vec(),
        };
        assert_eq!(passed_over, expected);
    }
}

#[tokio::test]
async fn where_nothing_can_be_had_the_error_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, request) = pool(folder.path(), "browser");
    let error = pool.run(&request).await.unwrap_err();
    assert!(matches!(error, RunError::NoDevice(_)));
    assert!(error.to_string().contains("wasm: no browser with wasm has joined"), "{error}");
}

#[tokio::test]
async fn a_wrong_request_is_not_tried_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, request) = pool(folder.path(), "cpu,wasm");
    let error = pool.run(&Request { inputs: vec![], ..request }).await.unwrap_err();
    assert!(matches!(error, RunError::Device(error) if error.kind() == ErrorKind::Caller));
}

#[tokio::test]
async fn a_model_that_was_prepared_once_is_ready() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, request) = pool(folder.path(), "cpu");
    assert!(pool.run(&request).await.unwrap().loaded.took > std::time::Duration::ZERO);
    assert!(pool.run(&request).await.unwrap().loaded.took.is_zero());
}

/// The same for each of these values.
fn each(request: &Request, values: std::ops::Range<u16>) -> Vec<Request> {
    let with = |value: u16| {
        let input = Tensor::from_slice(&[1], &[f32::from(value)]).unwrap();
        Request { inputs: vec![("x".to_owned(), input)], ..request.clone() }
    };
    values.map(with).collect()
}

fn doubled(answers: &[Result<Answer, RunError>]) -> Vec<f32> {
    let value = |answer: &Result<Answer, RunError>| {
        let outcome = &answer.as_ref().unwrap().outcome;
        outcome.output("y").unwrap().to_vec::<f32>().unwrap()[0]
    };
    answers.iter().map(value).collect()
}

#[tokio::test]
async fn requests_at_once_are_answered_in_order_and_run_together() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, request) = pool(folder.path(), "cpu");
    let expected: Vec<f32> = (0..32).map(|value| 2.0 * value as f32).collect();
    // The first are the proof, which has to be done before it counts.
    while pool.metrics().batches.proven == 0 {
        let answers = pool.run_concurrent(&each(&request, 0..32)).await;
        assert_eq!(doubled(&answers), expected);
    }
    let answers = pool.run_concurrent(&each(&request, 0..32)).await;
    assert_eq!(doubled(&answers), expected);
    assert!(answers.iter().flatten().any(|answer| answer.batch_rows > 1));
    let metrics = pool.metrics();
    assert!(metrics.batches.rows >= 2 * metrics.batches.count);
    assert_eq!(metrics.batches.refuted, 0);
    assert_eq!(metrics.models.loads, 1);
    assert_eq!(metrics.queue.accepted, 0);
    assert_eq!(metrics.times.compute.count, metrics.throughput.answered);
    assert_eq!(metrics.devices[0].models.len(), 1);
    // What is told can be sent.
    let text = serde_json::to_string(&metrics).unwrap();
    let read: Metrics = serde_json::from_str(&text).unwrap();
    assert_eq!(read.devices, metrics.devices);
}

#[tokio::test]
async fn requests_do_not_run_together_if_that_is_not_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let options = PoolOptions { max_batch: 1, ..PoolOptions::default() };
    let (pool, request) = pool_with(folder.path(), "cpu", options);
    let answers = pool.run_concurrent(&each(&request, 0..32)).await;
    assert!(answers.iter().flatten().all(|answer| answer.batch_rows == 1));
    assert_eq!(pool.metrics().batches.count, 0);
}

#[tokio::test]
async fn past_the_limit_a_request_is_refused_or_waits() {
    let folder = tempfile::tempdir().unwrap();
    for when_full in [WhenFull::Refuse, WhenFull::Wait] {
        let queue = QueueOptions { limit: 4, when_full };
        let options = PoolOptions { queue, ..PoolOptions::default() };
        let (pool, request) = pool_with(folder.path(), "cpu", options);
        let answers = pool.run_concurrent(&each(&request, 0..10)).await;
        let refused = answers.iter().filter(|answer| answer.is_err()).count();
        let error = answers.into_iter().find_map(Result::err);
        match when_full {
            WhenFull::Wait => assert!(error.is_none(), "{error:?}"),
            WhenFull::Refuse => {
                assert!(matches!(error, Some(RunError::Full { limit: 4 })), "{error:?}");
                assert_eq!(refused, 6);
                assert_eq!(pool.metrics().errors["full"], 6);
            }
        }
        assert_eq!(pool.metrics().queue.accepted, 0);
    }
}

#[test]
fn a_lane_may_keep_all_that_the_pool_wants_it_to() {
    for options in [
        PoolOptions::default(),
        PoolOptions {
            shared_tensor_bytes: 8 << 30,
            cache_bytes: 1 << 30,
            ..PoolOptions::default()
        },
    ] {
        let wanted = options.shared_tensor_bytes + options.cache_bytes;
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let pool = Pool::new(store, options).unwrap();
        assert!(pool.lanes().options().tensor_bytes > wanted);
    }
}
