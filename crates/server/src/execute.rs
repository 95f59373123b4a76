//! `POST /control/execute`: a workload to the pool, and what came of it, over HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_pool::{Execution, Workload, WorkloadError, explain};
use holdfast_predict::{Estimate, Goal, Measured, Strategy};
use holdfast_wire::BodyWriter;
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use crate::client::ClientError;
use crate::context::Context;
use crate::file::ServerFile;
use crate::pack::{pack, unpack};
use crate::run::{AnswerHeader, RequestHeader, failure, status};

/// `POST /control/execute`
pub(crate) async fn execute(State(context): State<Arc<Context>>, body: Bytes) -> Response {
    let Some(pool) = &context.pool else {
        return failure(StatusCode::NOT_IMPLEMENTED, "this Holdfast runs no models".to_owned());
    };
    let (workload, strategy) = match decode_workload(&body) {
        Ok(workload) => workload,
        Err(why) => {
            return failure(StatusCode::BAD_REQUEST, format!("the workload makes no sense: {why}"));
        }
    };
    match pool.execute(&workload, strategy).await.map(encode_execution) {
        Ok(Ok(done)) => done.into_response(),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(error) => {
            let status = match &error {
                WorkloadError::Empty | WorkloadError::ComparedByMemory => StatusCode::BAD_REQUEST,
                WorkloadError::Request { source, .. } => status(source),
                WorkloadError::Unknown { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            };
            failure(status, explain(&error))
        }
    }
}

impl ServerFile {
    /// Runs a workload in the server, as [`Pool::execute`](holdfast_pool::Pool::execute) does here.
    pub async fn execute(
        &self,
        workload: &Workload,
        strategy: Option<Strategy>,
    ) -> Result<Execution, ClientError> {
        let body = encode_workload(workload, strategy);
        let body = body.map_err(|error| ClientError::Answer(error.to_string()))?;
        let answer = self.client().ask(hyper::Method::POST, "/control/execute", body).await?;
        decode_execution(&answer).map_err(ClientError::Answer)
    }
}

/// A workload as JSON; its tensors lie in the body behind it.
#[derive(Serialize, Deserialize)]
struct WorkloadHeader {
    requests: Vec<RequestHeader>,
    goal: Goal,
    /// The one that is recommended, if none is given.
    strategy: Option<Strategy>,
}

/// What came of it as JSON; its tensors lie in the body behind it.
#[derive(Serialize, Deserialize)]
struct ExecutionHeader {
    strategy: Strategy,
    answers: Vec<AnswerHeader>,
    measured: Measured,
    estimate: Option<Estimate>,
    loaded: bool,
}

fn encode_workload(workload: &Workload, strategy: Option<Strategy>) -> serde_json::Result<Bytes> {
    let mut body = BodyWriter::default();
    let requests = workload.requests.iter();
    let requests = requests.map(|request| RequestHeader::of(request, &mut body)).collect();
    let header = WorkloadHeader { requests, goal: workload.goal, strategy };
    pack(&header, body)
}

fn decode_workload(packed: &Bytes) -> Result<(Workload, Option<Strategy>), String> {
    let (header, body): (WorkloadHeader, Bytes) = unpack(packed)?;
    let requests = header.requests.into_iter().map(|request| request.read(&body));
    let requests = requests.collect::<Result<_, _>>()?;
    Ok((Workload { requests, goal: header.goal }, header.strategy))
}

fn encode_execution(execution: Execution) -> serde_json::Result<Bytes> {
    let mut body = BodyWriter::default();
    let Execution { strategy, answers, measured, estimate, loaded } = execution;
    let answers = answers.into_iter().map(|answer| AnswerHeader::of(answer, &mut body)).collect();
    let header = ExecutionHeader { strategy, answers, measured, estimate, loaded };
    pack(&header, body)
}

fn decode_execution(packed: &Bytes) -> Result<Execution, String> {
    let (header, body): (ExecutionHeader, Bytes) = unpack(packed)?;
    let ExecutionHeader { strategy, answers, measured, estimate, loaded } = header;
    let answers = answers.into_iter().map(|answer| answer.read(&body)).collect::<Result<_, _>>()?;
    Ok(Execution { strategy, answers, measured, estimate, loaded })
}
