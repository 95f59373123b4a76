//! Takes connections in: limits, TLS, and an end that lets requests under way finish.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::context::Context;
use crate::patient::Patient;
use crate::server::Limits;
use crate::site::Site;
use crate::{blobs, checks, control, execute, history, pages, run, socket};

/// Headers in one request, and bytes of them.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 32 << 10;

/// Bytes of a request's body.
const BODY_BYTES: usize = 64 << 10;

/// A way in: all of them lead to the same server.
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    /// What it is called by those who come in here.
    pub(crate) site: Arc<Site>,
    pub(crate) limits: Limits,
}

/// Serves until the context says that it closes, and returns when no new connection is taken.
pub(crate) async fn accept(door: Door, context: Arc<Context>) {
    let Door { listener, tls, site, limits } = door;
    let router = routes(context.clone(), site);
    let connections = Arc::new(Semaphore::new(limits.connections));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = context.closing.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Such as no more file handles: trying again at once would only burn time.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else {
            tracing::warn!(%peer, limit = limits.connections, "too many connections at once");
            if tls.is_none() {
                turn_away(&stream);
            }
            continue;
        };
        let (router, tls, closing) = (router.clone(), tls.clone(), context.clone());
        context.spawn(async move {
            let _permit = permit;
            connection(stream, peer, tls, limits, router, &closing).await;
        });
    }
}

fn routes(context: Arc<Context>, site: Arc<Site>) -> Router {
    let controlled = Router::new()
        .route("/control/status", get(control::status))
        .route("/control/join", get(control::join))
        .route("/control/metrics", get(control::metrics))
        .route("/control/history", get(history::history))
        .route("/control/run", post(run::run).layer(DefaultBodyLimit::max(run::BODY_BYTES)))
        .route(
            "/control/execute",
            post(execute::execute).layer(DefaultBodyLimit::max(run::BODY_BYTES)),
        )
        .route_layer(middleware::from_fn_with_state(context.clone(), control::guard));
    Router::new()
        .route("/", get(pages::home))
        .route("/join", get(pages::join))
        .route("/assets/{*path}", get(pages::asset))
        .route("/blobs/{name}", get(blobs::blob))
        .route("/lane", get(socket::lane))
        .merge(controlled)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        // The last one added is the first one to see a request.
        .layer(middleware::from_fn_with_state(site, checks::guard))
        .with_state(context)
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    router: Router,
    context: &Context,
) {
    // Small frames have to leave at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a connection was lost at once");
        return;
    }
    let stream = Patient::new(stream, limits.write_time);
    let Some(tls) = tls else { return serve(stream, peer, limits, router, context).await };
    match tokio::time::timeout(limits.header_time, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, peer, limits, router, context).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    limits: Limits,
    router: Router,
    context: &Context,
) {
    let router = router.layer(Extension(socket::Peer(peer.ip().to_canonical())));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_headers(HEADERS)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    tokio::pin!(connection);
    let result = tokio::select! {
        result = &mut connection => result,
        () = context.closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

/// Says why before the connection is closed, if that goes without waiting.
fn turn_away(stream: &TcpStream) {
    let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\n\
                  content-length: 36\r\nconnection: close\r\n\r\n\
                  There are too many connections now.\n";
    let _ = stream.try_write(answer.as_bytes());
}
