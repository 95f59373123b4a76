//! The peer: a bare page, in the same browser or in one of its own, driven over a plain WebSocket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use holdfast_browsers::Browser;
use holdfast_devices::Segment;
use holdfast_devtools::DevTools;
use holdfast_graph::{Tensor, blob_digest, blob_name};
use holdfast_models::Store;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::machine::workspace;

/// How long the page has to open its socket.
const LIMIT: Duration = Duration::from_secs(30);

/// The page at the far end of its socket.
pub(crate) struct Bare {
    socket: WebSocketStream<TcpStream>,
    _files: Serving,
}

/// A page that is there to be opened.
pub(crate) struct Awaited {
    pub(crate) address: String,
    sockets: TcpListener,
    files: Serving,
}

/// Serves the page's files until it is dropped.
struct Serving(tokio::task::JoinHandle<()>);

struct Files {
    store: Arc<Store>,
    socket_port: u16,
}

impl Bare {
    /// Opens the page in a further tab of a browser that was started with DevTools.
    pub(super) async fn open(browser: &Browser, store: Arc<Store>) -> Result<Bare> {
        let page = Bare::page(store).await?;
        let devtools = DevTools::connect(browser.profile()).await?;
        devtools.call(None, "Target.createTarget", json!({ "url": page.address })).await?;
        page.opened().await
    }

    /// A page for whoever opens its address.
    pub(crate) async fn page(store: Arc<Store>) -> Result<Awaited> {
        let sockets = TcpListener::bind("127.0.0.1:0").await?;
        let pages = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}/", pages.local_addr()?);
        let files = Arc::new(Files { store, socket_port: sockets.local_addr()?.port() });
        let router = Router::new()
            .route("/", get(|| async { page("bare.html") }))
            .route("/bare-worker.js", get(worker))
            .route("/ort/{name}", get(engine))
            .route("/blobs/{name}", get(blob))
            .with_state(files);
        let files = tokio::spawn(async move {
            // It ends with the task.
            let _ = axum::serve(pages, router).await;
        });
        Ok(Awaited { address, sockets, files: Serving(files) })
    }

    /// Makes a session of a segment, whose inputs are all token ids, with so many threads.
    pub(crate) async fn load(
        &mut self,
        segment: &Segment,
        inputs: &[(String, Tensor)],
        threads: usize,
    ) -> Result<()> {
        let mut weights: Vec<String> =
            segment.graph.weights.iter().map(|weight| blob_name(&weight.content)).collect();
        weights.sort();
        weights.dedup();
        let input = |(name, tensor): &(String, Tensor)| -> Result<Value> {
            let values = tensor.to_vec::<i64>()?;
            Ok(json!({ "name": name, "dims": tensor.dims(), "values": values }))
        };
        let inputs = inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
        let graph = blob_name(&segment.graph.graph);
        let order = json!({
            "type": "load", "graph": graph, "weights": weights, "threads": threads, "inputs": inputs,
        });
        self.order(order).await.map(drop)
    }

    /// Runs the session once: how long it took, and the first number of its answer.
    pub(crate) async fn run(&mut self) -> Result<(Duration, f64)> {
        let answer = self.order(json!({ "type": "run" })).await?;
        let milliseconds = answer["milliseconds"].as_f64().context("no time")?;
        let first = answer["first"].as_f64().context("no answer")?;
        Ok((Duration::from_secs_f64(milliseconds / 1e3), first))
    }

    /// The time of one small message there and back.
    pub(super) async fn round_trip(&mut self) -> Result<Duration> {
        let message = Bytes::from_static(&[7; 64]);
        let started = Instant::now();
        self.socket.send(Message::Binary(message)).await?;
        self.binary().await?;
        Ok(started.elapsed())
    }

    /// The time of one large message there and back.
    pub(super) async fn echo(&mut self, bytes: &Bytes) -> Result<Duration> {
        let started = Instant::now();
        self.socket.send(Message::Binary(bytes.clone())).await?;
        let back = self.binary().await?;
        let took = started.elapsed();
        ensure!(back == *bytes, "the echo is something else");
        Ok(took)
    }

    /// The time to send one large message to the page, until it says that it has it.
    pub(super) async fn send(&mut self, bytes: &Bytes) -> Result<Duration> {
        self.order(json!({ "type": "receive", "bytes": bytes.len() })).await?;
        let started = Instant::now();
        self.socket.send(Message::Binary(bytes.clone())).await?;
        self.binary().await?;
        Ok(started.elapsed())
    }

    /// The time from asking the page for one large message until it is here.
    pub(super) async fn receive(&mut self, byte_len: usize) -> Result<Duration> {
        let order = json!({ "type": "send", "bytes": byte_len });
        let started = Instant::now();
        self.socket.send(Message::text(order.to_string())).await?;
        let message = self.binary().await?;
        let took = started.elapsed();
        ensure!(message.len() == byte_len, "a message of {} bytes", message.len());
        self.answer().await?;
        Ok(took)
    }

    async fn order(&mut self, order: Value) -> Result<Value> {
        self.socket.send(Message::text(order.to_string())).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Value> {
        let Some(Message::Text(text)) = self.socket.next().await.transpose()? else {
            bail!("the bare page did not answer");
        };
        let mut answer: Value = serde_json::from_str(&text)?;
        match answer.get("error") {
            Some(error) => bail!("the bare page failed: {error}"),
            None => Ok(answer["answer"].take()),
        }
    }

    async fn binary(&mut self) -> Result<Bytes> {
        match self.socket.next().await.transpose()? {
            Some(Message::Binary(bytes)) => Ok(bytes),
            other => bail!("the bare page sent {other:?}"),
        }
    }
}

impl Awaited {
    /// The page, once somebody has opened it.
    pub(crate) async fn opened(self) -> Result<Bare> {
        let (stream, _) = tokio::time::timeout(LIMIT, self.sockets.accept())
            .await
            .context("the bare page did not open its socket")??;
        stream.set_nodelay(true)?;
        let socket = tokio_tungstenite::accept_async(stream).await?;
        Ok(Bare { socket, _files: self.files })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn page(name: &str) -> Response {
    file(workspace().join("benches/pages").join(name))
}

async fn worker(State(files): State<Arc<Files>>) -> Response {
    let path = workspace().join("benches/pages/bare-worker.js");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let text = text.replace("SOCKET_PORT", &files.socket_port.to_string());
            isolated("text/javascript", text.into())
        }
        Err(error) => (StatusCode::NOT_FOUND, error.to_string()).into_response(),
    }
}

async fn engine(Path(name): Path<String>) -> Response {
    file(workspace().join("web/dist/assets/ort").join(name))
}

async fn blob(State(files): State<Arc<Files>>, Path(name): Path<String>) -> Response {
    let found = blob_digest(&name).map(|digest| files.store.blob(&digest));
    match found {
        Some(Ok(bytes)) => isolated("application/octet-stream", bytes),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn file(path: PathBuf) -> Response {
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html",
        Some("js" | "mjs") => "text/javascript",
        _ => "application/wasm",
    };
    match std::fs::read(&path) {
        Ok(bytes) => isolated(kind, bytes.into()),
        Err(error) => (StatusCode::NOT_FOUND, error.to_string()).into_response(),
    }
}

/// With the headers that give a page threads.
fn isolated(kind: &'static str, bytes: Bytes) -> Response {
    let headers = [
        (header::CONTENT_TYPE.as_str(), kind),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-embedder-policy", "require-corp"),
        ("cross-origin-resource-policy", "same-origin"),
    ];
    (headers, bytes).into_response()
}
