//! Blobs: graphs and weights by their hash, for the lanes whose segments need them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap};

use crate::checks::{Refusal, bearer};
use crate::context::Context;

/// `GET /blobs/sha256-…` with the key from the lane's welcome.
///
/// Whether the key is wrong, the blob unknown or of no concern to this lane is not told.
pub(crate) async fn blob(
    State(context): State<Arc<Context>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let lane = bearer(&headers).and_then(|key| context.lanes.by_blob_key(key));
    let digest = holdfast_graph::blob_digest(&name);
    let Some((lane, digest)) = lane.zip(digest) else { return nothing() };
    // Maps a file and checks its hash.
    let read = tokio::task::spawn_blocking(move || lane.blob(&digest)).await;
    let bytes = match read {
        Ok(Some(Ok(bytes))) => bytes,
        Ok(None) => return nothing(),
        Ok(Some(Err(error))) => return broken(&name, &error),
        Err(error) => return broken(&name, &error),
    };
    let content = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        // The lane keeps it in a place of its own.
        (header::CACHE_CONTROL, "no-store"),
    ];
    (content, Body::from(bytes)).into_response()
}

fn nothing() -> Response {
    Refusal(StatusCode::FORBIDDEN, "There is nothing here for this key.").into_response()
}

fn broken(name: &str, error: &dyn std::error::Error) -> Response {
    tracing::error!(name, %error, "a blob cannot be read");
    Refusal(StatusCode::INTERNAL_SERVER_ERROR, "The blob cannot be read.").into_response()
}
