//! Control: for other programs of the same user, who can read the token in `server.json`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_devices::Device;
use holdfast_devices::lane::Lane;
use hyper::StatusCode;
use hyper::body::{Frame, SizeHint};
use serde::{Deserialize, Serialize};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::checks::{Refusal, knows};
use crate::context::Context;

/// How a server is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of Holdfast.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Where it is.
    pub origin: String,
    /// How long it has been there.
    pub uptime_seconds: f64,
    /// The file that it keeps its history in.
    #[serde(default)]
    pub history: Option<String>,
    /// The lanes that joined and have not gone.
    pub lanes: Vec<LaneStatus>,
}

/// How a lane is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneStatus {
    /// What Holdfast calls it.
    pub name: String,
    /// What it computes on.
    pub backend: String,
    /// The adapter.
    pub adapter: String,
    /// Name and version of the browser.
    pub browser: String,
    /// Whether it can be heard right now.
    pub connected: bool,
    /// Whether it is an accelerator, as far as that was measured.
    pub accelerated: bool,
    /// Requests without an answer.
    pub in_flight: usize,
    /// Connections, the first included.
    pub connections: u32,
    /// Why the last one ended.
    pub last_cut: Option<String>,
    /// How long the lane was away in all.
    pub away_seconds: f64,
    /// The last round trip of a ping.
    pub round_trip_ms: Option<f64>,
    /// Bytes sent to it.
    pub sent_bytes: u64,
    /// Bytes received from it.
    pub received_bytes: u64,
    /// How often its engine was replaced.
    pub engine_restarts: u32,
    /// Why it was replaced the last time.
    pub last_loss: Option<String>,
    /// Answers to requests that had been given up.
    pub late_answers: u64,
    /// By the name of the operation.
    pub operations: BTreeMap<String, OperationStatus>,
}

/// How one kind of operation went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// How many succeeded.
    pub succeeded: u64,
    /// How many failed, by kind.
    pub failed: BTreeMap<String, u64>,
    /// The time that those which succeeded took, in all.
    pub total_ms: f64,
    /// The slowest.
    pub slowest_ms: f64,
}

/// Lets only those pass who know the control token, and keeps count of them, so that a server
/// that ends can wait for them.
pub(crate) async fn guard(
    State(context): State<Arc<Context>>,
    request: Request,
    next: Next,
) -> Response {
    if !knows(request.headers(), &context.control_token) {
        let why = "Control needs the token that stands in server.json.";
        return Refusal(StatusCode::UNAUTHORIZED, why).into_response();
    }
    // Counted before the look, so that none slips in between.
    let under_way = context.requests.token();
    if context.draining.is_cancelled() {
        let why = "Holdfast is about to end and takes nothing new.";
        return Refusal(StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    next.run(request).await.map(|body| Body::new(Counted { body, _under_way: under_way }))
}

/// The body of an answer, whose request is under way until all of it is handed over.
struct Counted {
    body: Body,
    _under_way: TaskTrackerToken,
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// `GET /control/status`
pub(crate) async fn status(State(context): State<Arc<Context>>) -> Json<Status> {
    Json(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        origin: context.site.origin().to_owned(),
        uptime_seconds: context.started.elapsed().as_secs_f64(),
        history: context.history.as_ref().map(|history| history.path().display().to_string()),
        lanes: context.lanes.all().iter().map(LaneStatus::of).collect(),
    })
}

/// `GET /control/join`
pub(crate) async fn join(State(context): State<Arc<Context>>) -> Json<serde_json::Value> {
    Json(serde_json::json!({ "link": context.join_link() }))
}

/// `GET /control/metrics`
pub(crate) async fn metrics(State(context): State<Arc<Context>>) -> Response {
    match &context.pool {
        Some(pool) => Json(pool.metrics()).into_response(),
        None => {
            let why = "This Holdfast runs no models.";
            Refusal(StatusCode::NOT_IMPLEMENTED, why).into_response()
        }
    }
}

impl LaneStatus {
    /// How a lane is now.
    pub fn of(lane: &Lane) -> LaneStatus {
        let (info, diagnostics, browser) = (lane.info(), lane.diagnostics(), &lane.hello().browser);
        let operations = diagnostics.operations.iter().map(|(name, operation)| {
            let failed = operation.failed.iter();
            let status = OperationStatus {
                succeeded: operation.succeeded,
                failed: failed.map(|(kind, count)| (kind.to_string(), *count)).collect(),
                total_ms: operation.total.as_secs_f64() * 1e3,
                slowest_ms: operation.slowest.as_secs_f64() * 1e3,
            };
            ((*name).to_owned(), status)
        });
        LaneStatus {
            name: info.name.clone(),
            backend: info.backend.clone(),
            adapter: info.adapter.clone(),
            browser: format!("{} {}", browser.name, browser.version),
            connected: lane.is_connected(),
            accelerated: info.accelerated,
            in_flight: lane.in_flight(),
            connections: diagnostics.connections,
            last_cut: diagnostics.last_cut,
            away_seconds: diagnostics.away.as_secs_f64(),
            round_trip_ms: diagnostics.round_trip.map(|took| took.as_secs_f64() * 1e3),
            sent_bytes: diagnostics.sent_bytes,
            received_bytes: diagnostics.received_bytes,
            engine_restarts: diagnostics.engine_restarts,
            last_loss: diagnostics.last_loss,
            late_answers: diagnostics.late_answers,
            operations: operations.collect(),
        }
    }
}
