//! What the server's tests have in common: a server over an empty store, and a plain client.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

pub(crate) mod lane;

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_devices::lane::{Lane, LaneOptions, Lanes};
use holdfast_devices::{Loaded, Program, Segment};
use holdfast_graph::{DataType, Digest, Tensor, encode};
use holdfast_models::{ImportOptions, Store, StoredGraph};
use holdfast_server::{Client, ClientError, Server, ServerOptions};
use holdfast_testkit::{Builder, fixed};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// However long the machine takes, this is too long.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) const SECRET_FILE: &str = "not for browsers";

/// A server over an empty store and a small page, all of which go with it.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) store: Arc<Store>,
    pub(crate) folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Scene {
        Scene::with(LaneOptions::default(), |_| ()).await
    }

    pub(crate) async fn with(lanes: LaneOptions, change: impl FnOnce(&mut ServerOptions)) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path().join("home")).unwrap());
        let lanes = Arc::new(Lanes::new(store.clone(), lanes));
        let mut options = options(folder.path());
        change(&mut options);
        let server = Server::start(lanes.clone(), options).await.unwrap();
        Scene { server, lanes, store, folder }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The token of the join link.
    pub(crate) fn token(&self) -> String {
        self.server.join_link().split_once("#token=").unwrap().1.to_owned()
    }

    /// The right `Host`.
    pub(crate) fn host(&self) -> String {
        self.address().to_string()
    }

    pub(crate) fn control(&self) -> Client {
        let token = self.server.control_token().reveal();
        Client::new(self.address(), token, self.server.fingerprint())
    }

    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let host = self.host();
        let mut all = vec![("host", host.as_str())];
        all.extend(headers);
        request(self.address(), Method::GET, path, &all).await
    }

    /// A model `y = x + mean(w)` for two numbers, whose weight is large enough for a blob.
    pub(crate) fn segment(&self, seed: u64) -> Segment {
        let mut builder = Builder::new("add", seed);
        let x = builder.input("x", DataType::F32, &[fixed(2)]);
        let w = Tensor::from_slice(&[4096], &vec![seed as f32; 4096]).unwrap();
        let w = builder.initializer("w", &w);
        let mean = builder.node("ReduceMean", &[&w], &[]);
        let y = builder.node("Add", &[&x, &mean], &[]);
        builder.output("y", &y, DataType::F32, &[fixed(2)]);
        Segment::new(self.import(&builder.finish().unwrap(), seed))
    }

    fn import(&self, model: &holdfast_graph::Model, seed: u64) -> StoredGraph {
        let path = self.folder.path().join(format!("model-{seed}.onnx"));
        std::fs::write(&path, encode(model)).unwrap();
        let options = ImportOptions { name: Some(format!("m{seed}")), ..ImportOptions::default() };
        let imported = self.store.import(&path, &options, &mut |_| ()).unwrap();
        imported.manifest.components[0].graph.clone()
    }

    /// The lane that is there.
    pub(crate) async fn lane(&self) -> Lane {
        within(self.lanes.wait_for(|_| true)).await
    }
}

/// Loopback, any port, a small page.
pub(crate) fn options(folder: &Path) -> ServerOptions {
    let web = folder.join("web");
    std::fs::create_dir_all(web.join("assets/ort")).unwrap();
    std::fs::write(web.join("join.html"), "<!doctype html><title>Holdfast</title>").unwrap();
    std::fs::write(web.join("assets/page.js"), "export {};").unwrap();
    std::fs::write(web.join("assets/ort/ort.wasm"), vec![7; 1 << 20]).unwrap();
    std::fs::write(web.join("secret.txt"), SECRET_FILE).unwrap();
    std::fs::write(folder.join("secret.txt"), SECRET_FILE).unwrap();
    ServerOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        assets: Some(web),
        ..ServerOptions::default()
    }
}

/// A program of the model above.
pub(crate) fn program(name: &str, loaded: &Loaded) -> Program {
    let x = Tensor::from_slice(&[2], &[10f32, 20.0]).unwrap();
    Program::single(name, loaded.id, [("x".to_owned(), x)], ["y".to_owned()])
}

/// The blobs of a segment.
pub(crate) fn blobs(segment: &Segment) -> (Digest, Digest) {
    (segment.graph.graph, segment.graph.weights[0].content)
}

pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Bytes,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// One request with just these headers.
pub(crate) async fn request(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Response {
    within(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            (name.to_string(), value.to_str().unwrap().to_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        connection.abort();
        Response { status, headers, body }
    })
    .await
}

/// What a future gives, within the limit.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it takes too long")
}

/// Waits until control says that the server is about to end.
pub(crate) async fn drains(control: &Client) {
    let refused = async {
        loop {
            match control.get("/control/status").await {
                Ok(_) => {}
                Err(ClientError::Refused { status, .. }) => break status,
                Err(other) => panic!("the server went while something was under way: {other}"),
            }
        }
    };
    assert_eq!(within(refused).await, StatusCode::SERVICE_UNAVAILABLE);
}

/// Waits until nobody listens there.
pub(crate) async fn refuses(address: SocketAddr) {
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let looks = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, looks).await.unwrap_or_else(|_| panic!("never: {what}"));
}
