//! Runs the steps of a program, one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use holdfast_graph::{Tensor, Value};
use ort::session::{NoSelectedOutputs, RunOptions, SessionInputValue};
use ort::value::{DynValue, ValueType};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::cores::Cores;
use super::fault::{engine_error, run_error};
use super::kept::KeptTensors;
use super::not_loaded;
use super::session::LoadedSession;
use super::value::{Borrowed, borrow, data_type, has_values_of, shape, to_tensor};
use crate::check::{byte_len, check_fits, no_such};
use crate::error::{DeviceError, ErrorKind};
use crate::program::{Input, KeptTensor, Output, Program, Returned, StepTiming, TensorId};
use crate::segment::SegmentId;

/// A tensor that stays in the engine: one that was put there, or an output of a session.
pub(crate) enum Kept {
    Put(Borrowed),
    Output(DynValue),
    /// Of a type that the engine has no values of: to be read back, and fed to nothing.
    Bytes(Tensor),
}

impl Kept {
    pub(crate) fn from_tensor(tensor: &Tensor) -> Result<Kept, DeviceError> {
        if !has_values_of(tensor.dtype()) {
            return Ok(Kept::Bytes(tensor.clone()));
        }
        borrow(tensor).map(Kept::Put).map_err(|e| engine_error("cannot take the tensor", e))
    }

    pub(crate) fn to_tensor(&self) -> Result<Tensor, DeviceError> {
        match self.value() {
            Ok(value) => to_tensor(value).map_err(|e| engine_error("cannot read the tensor", e)),
            Err(tensor) => Ok(tensor.clone()),
        }
    }

    pub(crate) fn byte_len(&self) -> u64 {
        match self.value() {
            Ok(value) => shape(value).and_then(|(dtype, dims)| byte_len(dtype, &dims)).unwrap_or(0),
            Err(tensor) => tensor.bytes().len() as u64,
        }
    }

    /// What it is as a kept tensor; `None` for what cannot be one.
    fn described(&self, id: &TensorId) -> Option<KeptTensor> {
        let (dtype, dims) = shape(self.value().ok()?)?;
        Some(KeptTensor { id: id.clone(), dtype, dims })
    }

    /// What the engine is fed; the tensor where it cannot be.
    fn value(&self) -> Result<&DynValue, &Tensor> {
        match self {
            Kept::Put(borrowed) => Ok(borrowed.value()),
            Kept::Output(value) => Ok(value),
            Kept::Bytes(tensor) => Err(tensor),
        }
    }

    /// What the engine is fed as an input, if it fits there.
    fn feed(&self, declared: &Value, step: usize) -> Result<&DynValue, DeviceError> {
        let value = self.value().map_err(|tensor| {
            DeviceError::caller(format!(
                "input `{}` of step {step} is {declared}, but {}{:?} was given, which can be \
                 fed to no model",
                declared.name,
                tensor.dtype(),
                tensor.dims()
            ))
        })?;
        check_value(declared, value, step)?;
        Ok(value)
    }
}

/// Ends a program from outside: between steps, or inside one by the engine's own switch.
pub(crate) struct Stop {
    options: RunOptions<NoSelectedOutputs>,
    reason: Mutex<Option<ErrorKind>>,
    changed: Notify,
}

impl Stop {
    pub(crate) fn new() -> Result<Stop, DeviceError> {
        let options = RunOptions::new().map_err(|e| engine_error("cannot prepare a run", e))?;
        Ok(Stop { options, reason: Mutex::new(None), changed: Notify::new() })
    }

    /// Stops, for the first reason given.
    pub(crate) fn stop(&self, reason: ErrorKind) {
        let mut current = self.reason.lock().expect("no code panics while holding this lock");
        current.get_or_insert(reason);
        // Only fails on a null pointer, which these options are not; the flag is checked anyway.
        let _ = self.options.terminate();
        self.changed.notify_waiters();
    }

    /// Waits until someone stops it.
    pub(crate) async fn stopped(&self) -> ErrorKind {
        loop {
            let changed = self.changed.notified();
            if let Some(reason) = self.reason() {
                return reason;
            }
            changed.await;
        }
    }

    fn reason(&self) -> Option<ErrorKind> {
        *self.reason.lock().expect("no code panics while holding this lock")
    }

    pub(crate) fn error(&self, reason: ErrorKind) -> DeviceError {
        DeviceError::new(reason, "the program was stopped before it was done")
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.reason().map_or(Ok(()), |reason| Err(self.error(reason)))
    }
}

/// A program whose segments and tensors were found and whose inputs fit.
pub(crate) struct Prepared {
    steps: Vec<PreparedStep>,
}

struct PreparedStep {
    session: Arc<LoadedSession>,
    inputs: Vec<(Value, Source)>,
    outputs: Vec<(String, Output)>,
}

enum Source {
    Value(Arc<Kept>),
    Step { step: usize, output: String },
}

/// What a program gave.
pub(crate) struct Done {
    pub(crate) returned: Vec<Returned>,
    pub(crate) kept: Vec<(KeptTensor, Arc<Kept>)>,
    pub(crate) steps: Vec<StepTiming>,
}

/// Finds everything that a program names and checks what can be checked before it runs.
pub(crate) fn prepare(
    program: &Program,
    sessions: &HashMap<SegmentId, Arc<LoadedSession>>,
    tensors: &KeptTensors,
) -> Result<Prepared, DeviceError> {
    let mut steps: Vec<PreparedStep> = Vec::new();
    for (number, step) in program.steps.iter().enumerate() {
        let session =
            sessions.get(&step.segment).cloned().ok_or_else(|| not_loaded(step.segment))?;
        let mut inputs = Vec::new();
        for (name, input) in &step.inputs {
            let declared = session.inputs.iter().find(|declared| declared.name == *name);
            let declared =
                declared.ok_or_else(|| no_such(&session.inputs, name, number, "input"))?;
            let source = match input {
                Input::Inline(tensor) => Source::Value(Arc::new(Kept::from_tensor(tensor)?)),
                Input::Kept(id) => Source::Value(tensors.get(id)?),
                Input::Step { step, output } => {
                    let named = |(name, _): &(String, Output)| name == output;
                    if !steps.get(*step).is_some_and(|step| step.outputs.iter().any(named)) {
                        return Err(DeviceError::caller(format!(
                            "input `{name}` of step {number} wants output `{output}` of step \
                             {step}, which does not name it or does not come before"
                        )));
                    }
                    Source::Step { step: *step, output: output.clone() }
                }
            };
            if let Source::Value(kept) = &source {
                kept.feed(declared, number)?;
            }
            if inputs.iter().any(|(given, _): &(Value, Source)| given.name == *name) {
                let message = format!("input `{name}` of step {number} is given twice");
                return Err(DeviceError::caller(message));
            }
            inputs.push((declared.clone(), source));
        }
        let given = |name: &str| inputs.iter().any(|(given, _)| given.name == name);
        if let Some(missing) = session.inputs.iter().find(|declared| !given(&declared.name)) {
            return Err(DeviceError::caller(format!(
                "step {number} lacks input `{}`, which is {missing}",
                missing.name
            )));
        }
        for (name, _) in &step.outputs {
            if !session.outputs.iter().any(|declared| declared.name == *name) {
                return Err(no_such(&session.outputs, name, number, "output"));
            }
        }
        steps.push(PreparedStep { session, inputs, outputs: step.outputs.clone() });
    }
    Ok(Prepared { steps })
}

/// Runs a prepared program.
pub(crate) fn execute(program: &Prepared, cores: &Cores, stop: &Stop) -> Result<Done, DeviceError> {
    let mut results: Vec<HashMap<String, Arc<Kept>>> = Vec::new();
    let mut done = Done { returned: Vec::new(), kept: Vec::new(), steps: Vec::new() };
    for (number, step) in program.steps.iter().enumerate() {
        stop.check()?;
        let mut inputs: Vec<(&str, Arc<Kept>)> = Vec::new();
        for (declared, source) in &step.inputs {
            let value = match source {
                Source::Value(value) => value.clone(),
                Source::Step { step, output } => {
                    let value = results[*step][output].clone();
                    value.feed(declared, number)?;
                    value
                }
            };
            inputs.push((&declared.name, value));
        }
        let started = Instant::now();
        let mut outputs = run_step(step, &inputs, number, cores, stop)?;
        let run = started.elapsed();
        let started = Instant::now();

        let mut named = HashMap::new();
        for (name, output) in &step.outputs {
            let value =
                outputs.remove(name).or_else(|| named.get(name).cloned()).ok_or_else(|| {
                    let message = format!("step {number} gave no output `{name}`");
                    DeviceError::new(ErrorKind::Device, message)
                })?;
            if output.is_returned() {
                let tensor = value.to_tensor()?;
                done.returned.push(Returned { step: number, name: name.clone(), tensor });
            }
            if let Some(id) = output.kept_as() {
                let kept = value.described(id).ok_or_else(|| {
                    let message = format!("output `{name}` of step {number} cannot be kept");
                    DeviceError::caller(match value.value() {
                        Ok(value) => format!("{message}: it is {}", value.dtype()),
                        Err(_) => message,
                    })
                })?;
                // Of several under one name the last.
                done.kept.retain(|(earlier, _)| earlier.id != *id);
                done.kept.push((kept, value.clone()));
            }
            named.insert(name.clone(), value);
        }
        results.push(named);
        done.steps.push(StepTiming { run, readback: started.elapsed() });
    }
    stop.check()?;
    Ok(done)
}

fn run_step(
    step: &PreparedStep,
    inputs: &[(&str, Arc<Kept>)],
    number: usize,
    cores: &Cores,
    stop: &Stop,
) -> Result<HashMap<String, Arc<Kept>>, DeviceError> {
    // All of them can be fed, or the program would have failed before.
    let given = inputs.iter().filter_map(|(name, kept)| Some((*name, kept.value().ok()?.into())));
    let values: Vec<(&str, SessionInputValue<'_>)> = given.collect();
    // Another program may be at this session for long, and waiting for it can be stopped too.
    let mut session = Handle::current().block_on(async {
        tokio::select! {
            biased;
            reason = stop.stopped() => Err(stop.error(reason)),
            session = step.session.session.lock() => Ok(session),
        }
    })?;
    let failed = |error: ort::Error| match stop.reason() {
        Some(reason) => stop.error(reason),
        None => run_error(&format!("step {number} failed"), error),
    };
    let seat = cores.take(&step.session.crew);
    let ran = session.run_with_options(values, &stop.options);
    drop(seat);
    let mut outputs = ran.map_err(failed)?;
    let names: Vec<String> = outputs.keys().map(str::to_owned).collect();
    let take = |name: String| {
        let value = outputs.remove(&name)?;
        Some((name, Arc::new(Kept::Output(value))))
    };
    Ok(names.into_iter().filter_map(take).collect())
}

/// Checks a value against what an input declares.
fn check_value(declared: &Value, value: &DynValue, step: usize) -> Result<(), DeviceError> {
    let ValueType::Tensor { ty, shape, .. } = value.dtype() else {
        return Err(DeviceError::caller(format!("input `{}` is not a tensor", declared.name)));
    };
    let dims: Vec<usize> = shape.iter().map(|&dim| dim as usize).collect();
    check_fits(declared, data_type(*ty), &dims, step)
}
