//! `POST /control/run`: a request to the pool and its answer over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_devices::lane::read_tensor;
use holdfast_devices::{DeviceInfo, Loaded, ModelKind, Outcome, Returned, StepTiming};
use holdfast_models::StoredGraph;
use holdfast_pool::{
    Answer, Choices, Failure, PassedOver, Priority, Request, Reused, RunError, explain,
};
use holdfast_wire::{BodyWriter, OutputTensor, TensorSlice};
use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use crate::client::ClientError;
use crate::context::Context;
use crate::file::ServerFile;
use crate::pack::{pack, push, unpack};

/// Bytes of a request and of an answer: what a message to a lane may have, and its header.
pub(crate) const BODY_BYTES: usize = (2 << 30) + (1 << 20);

/// `POST /control/run`
pub(crate) async fn run(State(context): State<Arc<Context>>, body: Bytes) -> Response {
    let Some(pool) = &context.pool else {
        return failure(StatusCode::NOT_IMPLEMENTED, "this Holdfast runs no models".to_owned());
    };
    let request = match decode_request(&body) {
        Ok(request) => request,
        Err(why) => {
            return failure(StatusCode::BAD_REQUEST, format!("the request makes no sense: {why}"));
        }
    };
    match pool.run(&request).await.map(encode_answer) {
        Ok(Ok(answer)) => answer.into_response(),
        Ok(Err(error)) => failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(error) => failure(status(&error), explain(&error)),
    }
}

/// What an error is in HTTP.
pub(crate) fn status(error: &RunError) -> StatusCode {
    match error {
        RunError::Device(_) => StatusCode::UNPROCESSABLE_ENTITY,
        RunError::NoDevice(_) | RunError::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
        RunError::Expired(_) => StatusCode::GATEWAY_TIMEOUT,
        RunError::Full { .. } => StatusCode::TOO_MANY_REQUESTS,
    }
}

impl ServerFile {
    /// Runs a model in the server, as [`Pool::run`](holdfast_pool::Pool::run) does here.
    pub async fn run(&self, request: &Request) -> Result<Answer, ClientError> {
        let body = encode_request(request).map_err(|e| ClientError::Answer(e.to_string()))?;
        let answer = self.client().ask(hyper::Method::POST, "/control/run", body).await?;
        decode_answer(&answer).map_err(ClientError::Answer)
    }
}

/// A request as JSON; its tensors lie in the body behind it.
#[derive(Serialize, Deserialize)]
pub(crate) struct RequestHeader {
    #[serde(default)]
    model: String,
    graph: StoredGraph,
    kind: ModelKind,
    inputs: Vec<(String, TensorSlice)>,
    choices: Choices,
    #[serde(default)]
    priority: Priority,
    #[serde(default = "yes")]
    share: bool,
    #[serde(default)]
    namespace: String,
    deadline: Option<Duration>,
}

fn yes() -> bool {
    true
}

/// An answer as JSON; its tensors lie in the body behind it.
#[derive(Serialize, Deserialize)]
pub(crate) struct AnswerHeader {
    outputs: Vec<OutputTensor>,
    /// On the device.
    queued: Duration,
    steps: Vec<StepTiming>,
    device: DeviceInfo,
    loaded: Loaded,
    took: Duration,
    transfer: Duration,
    /// In the pool.
    waited: Duration,
    #[serde(default)]
    reused: Reused,
    batch_rows: usize,
    passed_over: Vec<PassedOver>,
    failed_on: Vec<Failure>,
}

fn encode_request(request: &Request) -> serde_json::Result<Bytes> {
    let mut body = BodyWriter::default();
    let header = RequestHeader::of(request, &mut body);
    pack(&header, body)
}

fn decode_request(packed: &Bytes) -> Result<Request, String> {
    let (header, body): (RequestHeader, Bytes) = unpack(packed)?;
    header.read(&body)
}

fn encode_answer(answer: Answer) -> serde_json::Result<Bytes> {
    let mut body = BodyWriter::default();
    let header = AnswerHeader::of(answer, &mut body);
    pack(&header, body)
}

fn decode_answer(packed: &Bytes) -> Result<Answer, String> {
    let (header, body): (AnswerHeader, Bytes) = unpack(packed)?;
    header.read(&body)
}

impl RequestHeader {
    pub(crate) fn of(request: &Request, body: &mut BodyWriter) -> RequestHeader {
        let inputs = request.inputs.iter();
        RequestHeader {
            model: request.model.clone(),
            graph: request.graph.clone(),
            kind: request.kind,
            inputs: inputs.map(|(name, tensor)| (name.clone(), push(body, tensor))).collect(),
            choices: request.choices.clone(),
            priority: request.priority,
            share: request.share,
            namespace: request.namespace.clone(),
            deadline: request.deadline,
        }
    }

    pub(crate) fn read(self, body: &Bytes) -> Result<Request, String> {
        let input = |(name, slice): (String, TensorSlice)| {
            Ok::<_, String>((name, read_tensor(&slice, body)?))
        };
        Ok(Request {
            model: self.model,
            graph: self.graph,
            kind: self.kind,
            inputs: self.inputs.into_iter().map(input).collect::<Result<_, _>>()?,
            choices: self.choices,
            priority: self.priority,
            share: self.share,
            namespace: self.namespace,
            deadline: self.deadline,
        })
    }
}

impl AnswerHeader {
    pub(crate) fn of(answer: Answer, body: &mut BodyWriter) -> AnswerHeader {
        let Answer { outcome, loaded, took, transfer, queued, reused, .. } = answer;
        let (batch_rows, passed_over, failed_on) =
            (answer.batch_rows, answer.passed_over, answer.failed_on);
        let output = |Returned { step, name, tensor }| OutputTensor {
            step: step as u32,
            name,
            value: push(body, &tensor),
        };
        AnswerHeader {
            outputs: outcome.outputs.into_iter().map(output).collect(),
            queued: outcome.queued,
            steps: outcome.steps,
            device: outcome.device.as_ref().clone(),
            loaded,
            took,
            transfer,
            waited: queued,
            reused,
            batch_rows,
            passed_over,
            failed_on,
        }
    }

    pub(crate) fn read(self, body: &Bytes) -> Result<Answer, String> {
        let returned = |OutputTensor { step, name, value }: OutputTensor| {
            let tensor = read_tensor(&value, body)?;
            Ok::<_, String>(Returned { step: step as usize, name, tensor })
        };
        let outputs = self.outputs.into_iter().map(returned).collect::<Result<_, _>>()?;
        let device = Arc::new(self.device);
        // What is asked over HTTP keeps nothing.
        let kept = Vec::new();
        let outcome = Outcome { outputs, kept, steps: self.steps, queued: self.queued, device };
        Ok(Answer {
            outcome,
            loaded: self.loaded,
            took: self.took,
            transfer: self.transfer,
            queued: self.waited,
            reused: self.reused,
            batch_rows: self.batch_rows,
            passed_over: self.passed_over,
            failed_on: self.failed_on,
        })
    }
}

pub(crate) fn failure(status: StatusCode, why: String) -> Response {
    (status, why).into_response()
}
