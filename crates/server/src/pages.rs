//! The join page and the files that it loads.

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::body::Body;
use axum::extract::{self, State};
use axum::response::{IntoResponse, Redirect, Response};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap};
use tokio_util::io::ReaderStream;

use crate::assets::PAGE;
use crate::checks::Refusal;
use crate::context::Context;

const CHUNK: usize = 256 << 10;

/// `GET /`: browsers keep the token behind the `#` when they are sent on.
pub(crate) async fn home() -> Redirect {
    Redirect::to("/join")
}

/// `GET /join`
pub(crate) async fn join(State(context): State<Arc<Context>>, headers: HeaderMap) -> Response {
    serve(&context, PAGE, &headers).await
}

/// `GET /assets/…`
pub(crate) async fn asset(
    State(context): State<Arc<Context>>,
    extract::Path(path): extract::Path<String>,
    headers: HeaderMap,
) -> Response {
    serve(&context, &format!("assets/{path}"), &headers).await
}

async fn serve(context: &Context, name: &str, headers: &HeaderMap) -> Response {
    let Some(path) = context.assets.get(name) else {
        return Refusal(StatusCode::NOT_FOUND, "There is no such file.").into_response();
    };
    match open(path, headers).await {
        Ok(response) => response,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "a file of the page cannot be read");
            Refusal(StatusCode::INTERNAL_SERVER_ERROR, "The file cannot be read.").into_response()
        }
    }
}

async fn open(path: &Path, headers: &HeaderMap) -> std::io::Result<Response> {
    let file = tokio::fs::File::open(path).await?;
    let metadata = file.metadata().await?;
    let modified = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let tag = format!("\"{:x}-{:x}\"", metadata.len(), modified.as_nanos());
    // The names of files stay the same when their contents change, so browsers have to ask.
    let caching = [(header::CACHE_CONTROL, "no-cache".to_owned()), (header::ETAG, tag.clone())];
    if has_it(headers, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    let content = [
        (header::CONTENT_TYPE, content_type(path).to_owned()),
        (header::CONTENT_LENGTH, metadata.len().to_string()),
    ];
    let body = Body::from_stream(ReaderStream::with_capacity(file, CHUNK));
    Ok((caching, content, body).into_response())
}

/// Whether the browser has this version already.
fn has_it(headers: &HeaderMap, tag: &str) -> bool {
    let known =
        headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|value| value.split(',')).any(|known| known.trim() == tag)
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
