//! Sockets: a lane's frames between a WebSocket and the [`Link`] that lanes are served over.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use holdfast_devices::lane::Link;
use holdfast_wire::{
    FRAME_BODY_LIMIT, FRAME_LIMIT, HELLO_BYTES_LIMIT, SUBPROTOCOL, TOKEN_SUBPROTOCOL_PREFIX,
    ToLane, split,
};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;

use crate::checks::Refusal;
use crate::context::Context;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Messages that wait in each direction. Few, so that a slow reader is felt by the writer, and
/// that what is urgent does not wait behind them.
const WAITING: usize = 2;

/// Bytes of a body that a frame carries to and from other machines: a second's worth on a slow
/// line, so that pings get through. On this machine nothing is slow.
const FAR_FRAME_BYTES: usize = 1 << 20;

/// How long the other side may take to say goodbye.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Where a request comes from.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// `GET /lane`: becomes a WebSocket for those who know the token.
pub(crate) async fn lane(State(context): State<Arc<Context>>, mut request: Request) -> Response {
    let checked = check(&context, request.headers());
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let (handshake, upgrade) = match (checked, upgrade) {
        (Err(refusal), _) => {
            tracing::warn!(why = refusal.1, "a socket was turned away");
            return refusal.into_response();
        }
        (Ok(_), None) => return NO_SOCKET.into_response(),
        (Ok(handshake), Some(upgrade)) => (handshake, upgrade),
    };
    // Whoever knows the token could still open sockets and say nothing.
    let Ok(waiting) = context.waiting_sockets.clone().try_acquire_owned() else {
        let why = "Too many sockets have not said hello yet.";
        return Refusal(StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    if handshake.is_of_this_run {
        let is_near = request.extensions().get::<Peer>().is_some_and(|peer| peer.0.is_loopback());
        let frame_bytes = if is_near { FRAME_BODY_LIMIT } else { FAR_FRAME_BYTES };
        context.spawn(serve(context.clone(), upgrade, frame_bytes, waiting));
    } else {
        tracing::warn!("a socket came by a link of another run");
        context.spawn(refuse(upgrade, waiting));
    }
    let headers = [
        (header::CONNECTION, "upgrade".to_owned()),
        (header::UPGRADE, "websocket".to_owned()),
        (header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(handshake.key.as_bytes())),
        (header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL.to_owned()),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

const NO_SOCKET: Refusal =
    Refusal(StatusCode::UPGRADE_REQUIRED, "This address is for WebSockets of version 13.");

/// A handshake that is answered.
struct Handshake {
    key: String,
    /// Whether the token is right.
    is_of_this_run: bool,
}

fn check(context: &Context, headers: &HeaderMap) -> Result<Handshake, Refusal> {
    let has =
        |name: HeaderName, word: &str| words(headers, name).any(|w| w.eq_ignore_ascii_case(word));
    let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let is_upgrade = has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let key = key.filter(|_| is_upgrade).ok_or(NO_SOCKET)?;
    // Every browser sends it with a WebSocket; that it is ours was checked before.
    if !headers.contains_key(header::ORIGIN) {
        return Err(Refusal(StatusCode::FORBIDDEN, "A socket has to say which page it is of."));
    }
    if !words(headers, header::SEC_WEBSOCKET_PROTOCOL).any(|word| word == SUBPROTOCOL) {
        let why = "This Holdfast speaks the subprotocol holdfast.v1, which was not offered. \
                   Reload the page.";
        return Err(Refusal(StatusCode::BAD_REQUEST, why));
    }
    let mut tokens = words(headers, header::SEC_WEBSOCKET_PROTOCOL)
        .filter_map(|word| word.strip_prefix(TOKEN_SUBPROTOCOL_PREFIX))
        .peekable();
    if tokens.peek().is_none() {
        let why = "The token is missing. Open the link that Holdfast printed last.";
        return Err(Refusal(StatusCode::UNAUTHORIZED, why));
    }
    let is_of_this_run = tokens.any(|token| context.join_token.matches(token));
    Ok(Handshake { key: key.to_owned(), is_of_this_run })
}

/// The words of a header that is a list.
fn words(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Takes no frames that are longer than `limit`.
async fn open(upgrade: OnUpgrade, limit: usize) -> Option<Socket> {
    let upgraded = upgrade.await.inspect_err(|error| {
        tracing::debug!(%error, "a socket was lost at once");
    });
    let limits =
        WebSocketConfig::default().max_frame_size(Some(limit)).max_message_size(Some(limit));
    let upgraded = TokioIo::new(upgraded.ok()?);
    Some(WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(limits)).await)
}

/// Says that the token is wrong over the socket itself: a page cannot see why a socket was not
/// opened, and would try again for ever.
async fn refuse(upgrade: OnUpgrade, _waiting: OwnedSemaphorePermit) {
    let Some(socket) = open(upgrade, HELLO_BYTES_LIMIT).await else { return };
    let reason = "This link is of another run of Holdfast. Open the link that it printed last \
                  (`holdfast join`).";
    let refused = ToLane::Refused { reason: reason.to_owned() };
    let (outgoing, to_browser) = mpsc::channel(WAITING);
    for bytes in split(0, &refused, &[]).into_iter().flatten().flatten() {
        let _ = outgoing.send(bytes).await;
    }
    drop(outgoing);
    // Nobody wants to hear what it says.
    let (from_browser, _) = mpsc::channel(1);
    pump(socket, to_browser, from_browser, None).await;
}

async fn serve(
    context: Arc<Context>,
    upgrade: OnUpgrade,
    frame_bytes: usize,
    waiting: OwnedSemaphorePermit,
) {
    let Some(socket) = open(upgrade, FRAME_LIMIT).await else { return };
    let (outgoing, to_browser) = mpsc::channel(WAITING);
    let (from_browser, incoming) = mpsc::channel(WAITING);
    let lane = async {
        if let Err(error) = context.lanes.serve(Link { frame_bytes, outgoing, incoming }).await {
            tracing::warn!(%error, "a lane was not taken in");
        }
    };
    // In one task: what comes from one goes to the other without waking another thread. The lane
    // takes longer, because it waits for the browser to come back after a cut.
    tokio::join!(lane, pump(socket, to_browser, from_browser, Some(waiting)));
}

/// Carries frames both ways until either side is done.
async fn pump(
    socket: Socket,
    to_browser: mpsc::Receiver<Bytes>,
    from_browser: mpsc::Sender<Result<Bytes, String>>,
    waiting: Option<OwnedSemaphorePermit>,
) {
    let (sink, stream) = socket.split();
    let ending = CancellationToken::new();
    let farewell = OnceLock::new();
    let both = async {
        tokio::join!(
            read(stream, from_browser, &farewell, &ending),
            write(sink, to_browser, waiting, &farewell, &ending),
        )
    };
    tokio::pin!(both);
    let halves = tokio::select! {
        halves = &mut both => Some(halves),
        () = ending.cancelled() => tokio::time::timeout(CLOSE_LIMIT, both).await.ok(),
    };
    let Some((stream, sink)) = halves else { return };
    let Ok(socket) = stream.reunite(sink) else { return };
    let mut raw = socket.into_inner();
    // To close while bytes are still arriving would reset the connection, and the other side
    // would never read why.
    let _ = tokio::time::timeout(CLOSE_LIMIT, async {
        raw.shutdown().await?;
        tokio::io::copy(&mut raw, &mut tokio::io::sink()).await
    })
    .await;
}

/// From the browser to the lane.
async fn read(
    mut stream: SplitStream<Socket>,
    from_browser: mpsc::Sender<Result<Bytes, String>>,
    farewell: &OnceLock<CloseFrame>,
    ending: &CancellationToken,
) -> SplitStream<Socket> {
    let _ending = ending.clone().drop_guard();
    let broken = loop {
        let message = tokio::select! {
            message = stream.next() => message,
            () = from_browser.closed() => break None,
        };
        match message {
            Some(Ok(Message::Binary(frame))) => {
                if from_browser.send(Ok(frame)).await.is_err() {
                    break None;
                }
            }
            Some(Ok(Message::Text(_))) => {
                break Some((CloseCode::Unsupported, "a frame of text".to_owned()));
            }
            // Answered below this.
            Some(Ok(_)) => {}
            Some(Err(error @ Error::Capacity(_))) => {
                break Some((CloseCode::Size, error.to_string()));
            }
            // A line that was cut is nobody's fault.
            None | Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                break None;
            }
            Some(Err(error @ (Error::Protocol(_) | Error::Utf8(_)))) => {
                break Some((CloseCode::Protocol, error.to_string()));
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "a socket was cut");
                break None;
            }
        }
    };
    if let Some((code, how)) = broken {
        tracing::warn!(how, "a lane broke the protocol");
        let _ = farewell.set(CloseFrame { code, reason: how.clone().into() });
        let _ = from_browser.send(Err(how)).await;
    }
    drop(from_browser);
    // From here on there is a limit to the time.
    ending.cancel();
    while let Some(Ok(_)) = stream.next().await {}
    stream
}

/// From the lane to the browser.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut to_browser: mpsc::Receiver<Bytes>,
    mut waiting: Option<OwnedSemaphorePermit>,
    farewell: &OnceLock<CloseFrame>,
    ending: &CancellationToken,
) -> SplitSink<Socket, Message> {
    let _ending = ending.clone().drop_guard();
    while let Some(frame) = to_browser.recv().await {
        // The first frame answers the hello.
        drop(waiting.take());
        if let Err(error) = sink.send(Message::Binary(frame)).await {
            tracing::debug!(%error, "a socket was cut");
            return sink;
        }
    }
    let normal = || CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let close = farewell.get().cloned().unwrap_or_else(normal);
    // It may be closed already.
    let _ = sink.send(Message::Close(Some(close))).await;
    sink
}
