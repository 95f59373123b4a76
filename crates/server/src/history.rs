//! `GET /control/history`: what was predicted and what it was, for programs that cannot open the
//! file themselves, because this process holds it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use holdfast_history::Overview;
use hyper::StatusCode;
use serde::Deserialize;

use crate::checks::Refusal;
use crate::client::ClientError;
use crate::context::Context;
use crate::file::ServerFile;

/// What is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    /// How many of each, the newest.
    #[serde(default = "usual")]
    limit: usize,
}

fn usual() -> usize {
    20
}

/// The most that one answer lists of each.
const MOST: usize = 100_000;

/// `GET /control/history?limit=N`
pub(crate) async fn history(
    State(context): State<Arc<Context>>,
    Query(Wanted { limit }): Query<Wanted>,
) -> Response {
    let Some(history) = context.history.clone() else {
        return Refusal(StatusCode::NOT_IMPLEMENTED, "This Holdfast keeps no history.")
            .into_response();
    };
    let read = tokio::task::spawn_blocking(move || history.overview(limit.min(MOST)));
    match read.await {
        Ok(Ok(overview)) => Json(overview).into_response(),
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            let text = format!("{error}{}\n", cause.unwrap_or_default());
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

impl ServerFile {
    /// What the server's history has, the newest `limit` of each.
    pub async fn history(&self, limit: usize) -> Result<Overview, ClientError> {
        self.client().get_json(&format!("/control/history?limit={limit}")).await
    }
}
