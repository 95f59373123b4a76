//! A server that ends lets what is under way finish, wherever it is.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod common;

use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::lane::ScriptedLane;
use common::{Scene, drains, options, refuses, within};
use holdfast_devices::ModelKind;
use holdfast_graph::Tensor;
use holdfast_models::Store;
use holdfast_pool::{Answer, Pool, PoolOptions, Priority, Request};
use holdfast_server::{ClientError, Server, ServerFile, ServerOptions};
use holdfast_wire::ToLane;
use tokio::task::JoinHandle;

/// A server with a run under way in its own process, which waits to be let go on.
struct Held {
    scene: Scene,
    file: ServerFile,
    answer: JoinHandle<Result<Answer, ClientError>>,
    go_on: mpsc::Sender<()>,
}

async fn held() -> Held {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
    let (go_on, wait) = mpsc::channel();
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let wait = Mutex::new(wait);
    let progress = Arc::new(move |_: &str| {
        let _ = begin.send(());
        // Nothing is ever sent: it goes on when the other end is gone. The runtime is told, because
        // what this thread was to do next would wait with it.
        let _ = tokio::task::block_in_place(|| wait.lock().unwrap().recv());
    });
    let options = PoolOptions { progress, ..PoolOptions::default() };
    let pool = Arc::new(Pool::new(store.clone(), options).unwrap());
    let (scene, file) = serve(folder, store, pool).await;
    let segment = scene.segment(3);
    let x = Tensor::from_slice(&[2], &[10f32, 20.0]).unwrap();
    let request = Request {
        model: "test".to_owned(),
        graph: segment.graph,
        kind: ModelKind::Other,
        inputs: vec![("x".to_owned(), x)],
        choices: "cpu".parse().unwrap(),
        priority: Priority::High,
        share: true,
        namespace: String::new(),
        deadline: None,
    };
    let answer = tokio::spawn({
        let file = file.clone();
        async move { file.run(&request).await }
    });
    within(begun.recv()).await.unwrap();
    Held { scene, file, answer, go_on }
}

async fn serve(
    folder: tempfile::TempDir,
    store: Arc<Store>,
    pool: Arc<Pool>,
) -> (Scene, ServerFile) {
    let lanes = pool.lanes().clone();
    let server = Server::start(lanes.clone(), with_pool(folder.path(), pool)).await.unwrap();
    let file = ServerFile::find(&folder.path().join("home")).unwrap();
    (Scene { server, lanes, store, folder }, file)
}

fn with_pool(folder: &Path, pool: Arc<Pool>) -> ServerOptions {
    ServerOptions { home: Some(folder.join("home")), pool: Some(pool), ..options(folder) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_control_is_answered_before_the_server_ends() {
    let Held { scene, file, answer, go_on } = held().await;
    let (mut scripted, _) = ScriptedLane::join(&scene).await;
    let address = scene.address();
    let Scene { server, folder, lanes, .. } = scene;
    let stopped = tokio::spawn(server.stop(common::LIMIT));
    drains(&file.client()).await;
    // A browser that the run may have to wait for can still come in, and lanes are needed.
    let host = address.to_string();
    let page = common::request(address, hyper::Method::GET, "/join", &[("host", &host)]).await;
    assert_eq!(page.status, hyper::StatusCode::OK);
    assert_eq!(lanes.all().len(), 1);
    assert!(!stopped.is_finished());

    drop(go_on);
    let answer = within(answer).await.unwrap().unwrap();
    let output = answer.outcome.output("y").unwrap();
    assert_eq!(output.to_vec::<f32>().unwrap(), [13.0, 23.0]);
    assert!(matches!(scripted.hear().await.0, ToLane::Leave { .. }));
    scripted.hear_close().await;
    within(stopped).await.unwrap();
    refuses(address).await;
    drop(folder);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_control_that_takes_too_long_is_cut() {
    let Held { scene, answer, go_on, .. } = held().await;
    let address = scene.address();
    let stopped = tokio::spawn(scene.server.stop(Duration::from_millis(50)));
    // It ends although the run has not.
    refuses(address).await;
    assert!(!answer.is_finished());
    // A thread that computes cannot be stopped, only what waits for it.
    drop(go_on);
    within(stopped).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn control_tells_how_the_pool_is_but_only_with_the_token() {
    let Held { scene, file, answer, go_on } = held().await;
    let metrics = within(file.metrics()).await.unwrap();
    assert_eq!((metrics.queue.accepted, metrics.throughput.answered), (1, 0));
    drop(go_on);
    within(answer).await.unwrap().unwrap();
    let metrics = within(file.metrics()).await.unwrap();
    assert_eq!((metrics.queue.accepted, metrics.throughput.answered), (0, 1));
    assert_eq!(metrics.devices[0].backend, "cpu");

    let host = scene.address().to_string();
    let asked = [("host", host.as_str())];
    let path = "/control/metrics";
    let refused = common::request(scene.address(), hyper::Method::GET, path, &asked).await;
    assert_eq!(refused.status, hyper::StatusCode::UNAUTHORIZED);
}
