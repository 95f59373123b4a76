//! From routes to a program: each step once, however many requests need it, and none that the
//! device has the result of.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_devices::{
    Device, DeviceError, Input, KeptTensor, Outcome, Output, Program, RequestId, Returned,
    SegmentId, TensorId,
};
use holdfast_graph::Digest;
use tokio::time::Instant;

use crate::batch::Inputs;
use crate::request::Reused;
use crate::route::{Prepared, Source, Step, StepOutput};
use crate::values::{Values, cast};

/// A request, as far as its program is concerned.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) model: &'a Prepared,
    pub(crate) inputs: &'a Inputs,
    /// What it computes on its way; `None` where nothing of it is shared.
    pub(crate) values: Option<&'a Values>,
    /// What the device has of that.
    pub(crate) there: &'a There,
}

/// What a device has of what a request computes.
#[derive(Debug, Default)]
pub(crate) struct There {
    pub(crate) values: HashMap<Digest, KeptValue>,
}

/// What a step gave, kept on the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptValue {
    /// By output: what the device calls it, and its bytes.
    pub(crate) tensors: HashMap<String, (TensorId, u64)>,
    /// How long the step takes there.
    pub(crate) takes: Duration,
}

/// What came of a program.
pub(crate) struct Ran {
    /// For each request in turn.
    pub(crate) answers: Vec<Answered>,
    /// How long each segment took.
    pub(crate) steps: Vec<(SegmentId, Duration)>,
    /// How long the way to the device and back took.
    pub(crate) transfer: Duration,
}

/// What came of one request.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) outcome: Outcome,
    /// The segments that its steps ran, in their order.
    pub(crate) segments: Vec<SegmentId>,
    /// How long the program took, as seen from here.
    pub(crate) took: Duration,
    /// What of that was neither a step, be it another request's, nor waiting on the device.
    pub(crate) transfer: Duration,
    /// Bytes that its steps were given on the way there.
    pub(crate) given_bytes: u64,
    pub(crate) reused: Reused,
}

/// A tensor that a program kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) value: Digest,
    /// Which output of its step, by position.
    pub(crate) output: usize,
    /// What computed it.
    pub(crate) segment: SegmentId,
    pub(crate) tensor: KeptTensor,
}

/// Runs requests in one program. What the device keeps of it is told as soon as that is there, however
/// this ends.
pub(crate) async fn run(
    device: &(impl Device + ?Sized),
    asked: &[Asked<'_>],
    deadline: Option<Duration>,
    kept: &mut Vec<Kept>,
) -> Result<Ran, DeviceError> {
    let assembly = Assembly::new(asked)?;
    let started = Instant::now();
    let request = RequestId(format!("pool-{}", assembly.serial));
    let program = Program { request, deadline, steps: assembly.steps.clone() };
    let mut outcome = if program.steps.is_empty() {
        let device = device.info();
        Outcome { outputs: vec![], steps: vec![], kept: vec![], queued: Duration::ZERO, device }
    } else {
        device.run(program).await?
    };
    kept.extend(assembly.kept(&outcome));
    let mut read = Vec::new();
    for part in &assembly.parts {
        read.push(part.read(device, &outcome).await?);
    }
    let took = started.elapsed();
    let steps = assembly.segments.iter().copied();
    let times = outcome.steps.iter().map(|step| step.run + step.readback);
    let transfer = took.saturating_sub(times.clone().sum::<Duration>() + outcome.queued);
    let steps = steps.zip(times).collect();
    // Each answer has a part of this.
    outcome.outputs = Vec::new();
    let answers = assembly.parts.iter().zip(read);
    let answers = answers
        .map(|(part, outputs)| Answered {
            reused: part.reused(&assembly, &outcome),
            segments: part.own.iter().map(|step| assembly.segments[*step]).collect(),
            outcome: part.outcome(&outcome, outputs),
            took,
            transfer,
            given_bytes: part.given_bytes(&assembly),
        })
        .collect();
    Ok(Ran { answers, steps, transfer })
}

/// A program, and what of it is whose.
struct Assembly {
    serial: u64,
    steps: Vec<holdfast_devices::Step>,
    segments: Vec<SegmentId>,
    /// The steps whose results are kept, by number.
    keeps: HashMap<usize, Digest>,
    parts: Vec<Part>,
}

/// What of a program belongs to one request.
#[derive(Default)]
struct Part {
    outputs: Vec<(String, Found)>,
    /// The steps that are there for it.
    own: Vec<usize>,
    /// Values that were there already.
    kept: Vec<KeptValue>,
    /// Steps that are there for another request: the step, and the outputs that this one takes.
    others: HashMap<usize, HashSet<String>>,
}

/// Where a value is.
#[derive(Clone)]
enum Found {
    Step { step: usize, output: String },
    Kept(TensorId),
}

impl Assembly {
    fn new(asked: &[Asked<'_>]) -> Result<Assembly, DeviceError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let (steps, segments, keeps, parts) = Default::default();
        let mut assembly = Assembly { serial, steps, segments, keeps, parts };
        let mut by_value = HashMap::new();
        for request in asked {
            let part = assembly.add(request, &mut by_value)?;
            assembly.parts.push(part);
        }
        Ok(assembly)
    }

    fn add(
        &mut self,
        request: &Asked<'_>,
        by_value: &mut HashMap<Digest, usize>,
    ) -> Result<Part, DeviceError> {
        let Asked { model, values, there, .. } = request;
        let mut part = Part::default();
        let needed = needed(request);
        let mut places: Vec<Option<Place<'_>>> = Vec::new();
        for (number, step) in model.steps.iter().enumerate() {
            let value = values.and_then(|values| values.steps[number]);
            let kept = value.and_then(|value| there.values.get(&value));
            let computed = value.and_then(|value| by_value.get(&value).copied());
            let place = if !needed[number] {
                None
            } else if let Some(kept) = kept {
                part.kept.push(kept.clone());
                Some(Place::Kept(kept))
            } else if let Some(step) = computed {
                part.others.entry(step).or_default();
                Some(Place::Step(step))
            } else {
                let inputs = self.inputs(request, step, &places, &mut part)?;
                let new = self.push(model.segment_of(step), inputs, step, value);
                by_value.extend(value.map(|value| (value, new)));
                part.own.push(new);
                Some(Place::Step(new))
            };
            places.push(place);
        }
        for (name, from) in &model.outputs {
            let found = find(&places, from)?;
            if let Found::Step { step, output } = &found {
                self.make_returned(*step, output);
            }
            part.take(&found);
            part.outputs.push((name.clone(), found));
        }
        Ok(part)
    }

    /// What feeds a step.
    fn inputs(
        &self,
        request: &Asked<'_>,
        step: &Step,
        places: &[Option<Place<'_>>],
        part: &mut Part,
    ) -> Result<Vec<(String, Input)>, DeviceError> {
        // A model on its own takes what it is given; what is wrong with that the device says.
        if request.model.shared.is_none() {
            let given = request.inputs.iter();
            return Ok(given.map(|(name, t)| (name.clone(), Input::Inline(t.clone()))).collect());
        }
        let mut inputs = Vec::new();
        for (input, source) in &step.inputs {
            let input_of = match source {
                Source::Constant(tensor) => Input::Inline(tensor.clone()),
                Source::Input { name, casts } => {
                    let given = request.inputs.iter().find(|(given, _)| given == name);
                    let (_, tensor) = given
                        .ok_or_else(|| DeviceError::caller(format!("input `{name}` is missing")))?;
                    let wrong = |error| DeviceError::caller(format!("input `{name}`: {error}"));
                    Input::Inline(cast(tensor, casts).map_err(wrong)?)
                }
                Source::Step(from) => {
                    let found = find(places, from)?;
                    part.take(&found);
                    match found {
                        Found::Step { step, output } => Input::Step { step, output },
                        Found::Kept(tensor) => Input::Kept(tensor),
                    }
                }
            };
            inputs.push((input.clone(), input_of));
        }
        Ok(inputs)
    }

    fn push(
        &mut self,
        segment: SegmentId,
        inputs: Vec<(String, Input)>,
        step: &Step,
        value: Option<Digest>,
    ) -> usize {
        let number = self.steps.len();
        let keep = value.filter(|_| step.trunk);
        self.keeps.extend(keep.map(|value| (number, value)));
        let outputs = step.outputs.iter().enumerate().map(|(index, output)| {
            // A name is used once: what is dropped later must not take its successor along.
            let name = |value: Digest| TensorId(format!("{value}.{index}.{}", self.serial));
            (output.clone(), keep.map_or(Output::Pass, |value| Output::Keep(name(value))))
        });
        let outputs = outputs.collect();
        self.steps.push(holdfast_devices::Step { segment, inputs, outputs });
        self.segments.push(segment);
        number
    }

    fn make_returned(&mut self, step: usize, output: &str) {
        let outputs = self.steps[step].outputs.iter_mut();
        for (_, to) in outputs.filter(|(name, _)| name == output) {
            *to = match std::mem::replace(to, Output::Return) {
                Output::Keep(id) | Output::ReturnAndKeep(id) => Output::ReturnAndKeep(id),
                Output::Return | Output::Pass => Output::Return,
            };
        }
    }

    /// What the device has kept of it.
    fn kept(&self, outcome: &Outcome) -> Vec<Kept> {
        let mut kept = Vec::new();
        for (&number, &value) in &self.keeps {
            let step = &self.steps[number];
            for (output, (_, to)) in step.outputs.iter().enumerate() {
                let told = outcome.kept.iter().find(|kept| Some(&kept.id) == to.kept_as());
                if let Some(tensor) = told {
                    let (segment, tensor) = (step.segment, tensor.clone());
                    kept.push(Kept { value, output, segment, tensor });
                }
            }
        }
        kept
    }
}

impl Part {
    /// Notes that it takes this.
    fn take(&mut self, found: &Found) {
        if let Found::Step { step, output } = found
            && let Some(taken) = self.others.get_mut(step)
        {
            taken.insert(output.clone());
        }
    }

    /// Its outputs, under the model's names.
    async fn read(
        &self,
        device: &(impl Device + ?Sized),
        outcome: &Outcome,
    ) -> Result<Vec<Returned>, DeviceError> {
        let mut outputs = Vec::new();
        for (name, found) in &self.outputs {
            let (step, tensor) = match found {
                Found::Step { step, output } => {
                    let is_it = |out: &&Returned| out.step == *step && out.name == *output;
                    let found = outcome.outputs.iter().find(is_it).ok_or_else(|| {
                        let message = format!("the device gave no output `{output}`");
                        DeviceError::new(holdfast_devices::ErrorKind::Device, message)
                    })?;
                    (*step, found.tensor.clone())
                }
                Found::Kept(id) => (0, device.get(id).await?),
            };
            outputs.push(Returned { step, name: name.clone(), tensor });
        }
        Ok(outputs)
    }

    /// Bytes that its steps take from outside of the device.
    fn given_bytes(&self, assembly: &Assembly) -> u64 {
        let inputs = self.own.iter().flat_map(|step| &assembly.steps[*step].inputs);
        let bytes = |input: &Input| match input {
            Input::Inline(tensor) => tensor.bytes().len() as u64,
            _ => 0,
        };
        inputs.map(|(_, input)| bytes(input)).sum()
    }

    /// What it did not have to compute.
    fn reused(&self, assembly: &Assembly, outcome: &Outcome) -> Reused {
        let mut reused = Reused::default();
        for value in &self.kept {
            reused.tensors += value.tensors.len();
            reused.bytes += value.tensors.values().map(|(_, bytes)| bytes).sum::<u64>();
            reused.saved += value.takes;
        }
        for (&step, outputs) in &self.others {
            reused.tensors += outputs.len();
            let of_step = assembly.steps[step].outputs.iter();
            let taken = of_step.filter(|(output, _)| outputs.contains(output));
            let ids: Vec<&TensorId> = taken.filter_map(|(_, to)| to.kept_as()).collect();
            let kept = outcome.kept.iter().filter(|kept| ids.contains(&&kept.id));
            reused.bytes += kept.map(KeptTensor::byte_len).sum::<u64>();
            reused.saved += outcome.steps.get(step).map_or(Duration::ZERO, |step| step.run);
        }
        reused
    }

    /// The part of an outcome that is its own.
    fn outcome(&self, outcome: &Outcome, outputs: Vec<Returned>) -> Outcome {
        let steps = self.own.iter().filter_map(|step| outcome.steps.get(*step).copied());
        Outcome {
            outputs,
            steps: steps.collect(),
            kept: Vec::new(),
            queued: outcome.queued,
            device: outcome.device.clone(),
        }
    }
}

/// Where the result of a step is.
enum Place<'a> {
    Step(usize),
    Kept(&'a KeptValue),
}

fn find(places: &[Option<Place<'_>>], from: &StepOutput) -> Result<Found, DeviceError> {
    let missing = || DeviceError::caller(format!("nothing gives `{}`", from.output));
    match places.get(from.step).and_then(Option::as_ref).ok_or_else(missing)? {
        Place::Step(step) => Ok(Found::Step { step: *step, output: from.output.clone() }),
        Place::Kept(value) => {
            let (tensor, _) = value.tensors.get(&from.output).ok_or_else(missing)?;
            Ok(Found::Kept(tensor.clone()))
        }
    }
}

/// Which steps are needed: what leads only to values that are there is not.
fn needed(request: &Asked<'_>) -> Vec<bool> {
    let Asked { model, values, there, .. } = request;
    let mut needed = vec![false; model.steps.len()];
    for (_, from) in &model.outputs {
        needed[from.step] = true;
    }
    for (number, step) in model.steps.iter().enumerate().rev() {
        let value = values.and_then(|values| values.steps[number]);
        let is_there = value.is_some_and(|value| there.values.contains_key(&value));
        if !needed[number] || is_there {
            continue;
        }
        for (_, source) in &step.inputs {
            if let Source::Step(from) = source {
                needed[from.step] = true;
            }
        }
    }
    needed
}

#[cfg(test)]
mod tests;
