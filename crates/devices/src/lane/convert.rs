//! Programs and tensors as the wire has them, and back, with everything checked on the way in.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use holdfast_graph::{DataType, Dim, Tensor, Value};
use holdfast_wire::{self as wire, BodyWriter, OutputTensor, TensorShape, TensorSlice};

use super::state::LoadedSegment;
use super::timeouts::LONGEST;
use crate::check::{byte_len, check_fits, fits, no_such};
use crate::error::DeviceError;
use crate::program::{Input, KeptTensor, Program, Returned, StepTiming, TensorId};
use crate::segment::SegmentId;
use crate::window::Window;

/// The element types that the engine in a browser can be fed.
const DTYPES: [DataType; 12] = [
    DataType::F32,
    DataType::F16,
    DataType::F64,
    DataType::I8,
    DataType::U8,
    DataType::I16,
    DataType::U16,
    DataType::I32,
    DataType::U32,
    DataType::I64,
    DataType::U64,
    DataType::Bool,
];

/// A program for the wire.
pub(crate) struct Encoded {
    pub(crate) steps: Vec<wire::Step>,
    pub(crate) body: Vec<Bytes>,
    /// How many bytes its inputs have.
    pub(crate) input_bytes: u64,
    /// What comes back, step by step, and how it has to be.
    pub(crate) returns: Vec<Returns>,
    /// What stays, each name once, and how it has to be.
    pub(crate) keeps: Vec<Keeps>,
}

/// An output that has to come back.
pub(crate) struct Returns {
    step: usize,
    declared: Value,
}

/// An output that has to stay.
pub(crate) struct Keeps {
    pub(crate) id: TensorId,
    declared: Value,
}

/// Encodes a program, after checking all that can be checked on this side.
pub(crate) fn encode_program(
    program: &Program,
    segments: &HashMap<SegmentId, LoadedSegment>,
) -> Result<Encoded, DeviceError> {
    let mut body = BodyWriter::default();
    let mut steps = Vec::new();
    let mut returns = Vec::new();
    let mut keeps: Vec<Keeps> = Vec::new();
    let mut input_bytes = 0;
    for (number, step) in program.steps.iter().enumerate() {
        let Some(segment) = segments.get(&step.segment) else {
            return Err(DeviceError::caller(format!("segment {} is not loaded", step.segment)));
        };
        let mut inputs: Vec<wire::NamedInput> = Vec::new();
        for (name, input) in &step.inputs {
            let declared = segment.inputs.iter().find(|declared| declared.name == *name);
            let declared =
                declared.ok_or_else(|| no_such(&segment.inputs, name, number, "input"))?;
            if inputs.iter().any(|given| given.name == *name) {
                let message = format!("input `{name}` of step {number} is given twice");
                return Err(DeviceError::caller(message));
            }
            let from = match input {
                Input::Inline(tensor) => {
                    check_fits(declared, Some(tensor.dtype()), tensor.dims(), number)?;
                    input_bytes += tensor.bytes().len() as u64;
                    check_dtype(tensor.dtype())?;
                    wire::Input::Inline { value: push_tensor(&mut body, tensor) }
                }
                Input::Kept(id) => wire::Input::Kept { tensor: id.0.clone() },
                Input::Step { step, output } => {
                    let earlier = program.steps[..number].get(*step);
                    let named =
                        |step: &crate::Step| step.outputs.iter().any(|(name, _)| name == output);
                    if !earlier.is_some_and(named) {
                        return Err(DeviceError::caller(format!(
                            "input `{name}` of step {number} wants output `{output}` of step \
                             {step}, which does not name it or does not come before"
                        )));
                    }
                    wire::Input::Step { step: *step as u32, output: output.clone() }
                }
            };
            inputs.push(wire::NamedInput { name: name.clone(), from });
        }
        let given = |name: &str| inputs.iter().any(|given| given.name == name);
        if let Some(missing) = segment.inputs.iter().find(|declared| !given(&declared.name)) {
            return Err(DeviceError::caller(format!(
                "step {number} lacks input `{}`, which is {missing}",
                missing.name
            )));
        }
        let mut outputs = Vec::new();
        for (name, output) in &step.outputs {
            let declared = segment.outputs.iter().find(|declared| declared.name == *name);
            let declared =
                declared.ok_or_else(|| no_such(&segment.outputs, name, number, "output"))?;
            if output.is_returned() {
                returns.push(Returns { step: number, declared: declared.clone() });
            }
            if let Some(id) = output.kept_as() {
                // Of several under one name the last.
                keeps.retain(|earlier| earlier.id != *id);
                keeps.push(Keeps { id: id.clone(), declared: declared.clone() });
            }
            let to = wire::Output {
                returned: output.is_returned(),
                keep: output.kept_as().map(|id| id.0.clone()),
            };
            outputs.push(wire::NamedOutput { name: name.clone(), to });
        }
        let is_last = number + 1 == program.steps.len();
        let early = !is_last && step.outputs.iter().any(|(_, output)| output.is_returned());
        steps.push(wire::Step { segment: step.segment.0.to_string(), inputs, outputs, early });
    }
    Ok(Encoded { steps, body: body.finish(), input_bytes, returns, keeps })
}

/// Puts a tensor into a body.
pub(crate) fn push_tensor(body: &mut BodyWriter, tensor: &Tensor) -> TensorSlice {
    let dims = tensor.dims().iter().map(|&dim| dim as u64).collect();
    body.push(tensor.dtype().name(), dims, tensor.bytes().clone())
}

/// A window for the wire.
pub(crate) fn window(window: &Window) -> wire::TensorWindow {
    let wide = |sizes: &[usize]| sizes.iter().map(|&size| size as u64).collect();
    let Window { offset, dims, strides } = window;
    wire::TensorWindow { offset: *offset as u64, dims: wide(dims), strides: wide(strides) }
}

/// Checks that a browser's engine can be fed tensors of a type.
pub(crate) fn check_dtype(dtype: DataType) -> Result<(), DeviceError> {
    if DTYPES.contains(&dtype) {
        return Ok(());
    }
    Err(DeviceError::caller(format!("a browser's engine takes no tensors of {dtype}")))
}

/// A tensor out of the body of a message. The error says how it does not lie there.
pub fn read_tensor(slice: &TensorSlice, body: &Bytes) -> Result<Tensor, String> {
    let (dtype, dims) = read_shape(&slice.dtype, &slice.dims)?;
    let bytes = slice.bytes(body).map_err(|error| error.to_string())?;
    Tensor::new(dtype, dims, bytes).map_err(|error| error.to_string())
}

fn read_shape(dtype: &str, dims: &[u64]) -> Result<(DataType, Vec<usize>), String> {
    let dtype =
        DataType::from_name(dtype).ok_or_else(|| format!("there is no element type `{dtype}`"))?;
    let sizes = dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let sizes = sizes.map_err(|_| format!("no tensor has the dimensions {dims:?}"))?;
    Ok((dtype, sizes))
}

/// The outputs that a lane sent: all that were to come back and nothing else, each as its segment
/// declares it. The error says how the lane broke the protocol.
pub(crate) fn read_outputs(
    returns: &[Returns],
    sent: &[(Vec<OutputTensor>, Bytes)],
) -> Result<Vec<Returned>, String> {
    let mut arrived: HashMap<(usize, &str), Tensor> = HashMap::new();
    for (outputs, body) in sent {
        for OutputTensor { step, name, value } in outputs {
            arrived.insert((*step as usize, name), read_tensor(value, body)?);
        }
    }
    let mut returned = Vec::new();
    for Returns { step, declared } in returns {
        let name = &declared.name;
        let tensor = arrived
            .remove(&(*step, name.as_str()))
            .ok_or_else(|| format!("output `{name}` of step {step} is missing"))?;
        if !fits(declared, Some(tensor.dtype()), tensor.dims()) {
            return Err(format!(
                "output `{name}` of step {step} is {declared}, but the lane sent {}{:?}",
                tensor.dtype(),
                tensor.dims()
            ));
        }
        returned.push(Returned { step: *step, name: name.clone(), tensor });
    }
    match arrived.into_keys().next() {
        Some((step, name)) => Err(format!("nobody asked for output `{name}` of step {step}")),
        None => Ok(returned),
    }
}

/// What a lane says it keeps: all that it was to keep and nothing else, each as its segment declares
/// it. The error says how the lane broke the protocol.
pub(crate) fn read_kept(
    keeps: &[Keeps],
    sent: &[wire::KeptTensor],
) -> Result<Vec<KeptTensor>, String> {
    if let Some(unasked) = sent.iter().find(|kept| keeps.iter().all(|k| k.id.0 != kept.tensor)) {
        return Err(format!("nobody asked it to keep tensor `{}`", unasked.tensor));
    }
    let read = |Keeps { id, declared }: &Keeps| {
        let mut told = sent.iter().filter(|kept| kept.tensor == id.0);
        let (Some(kept), None) = (told.next(), told.next()) else {
            return Err(format!("it does not say once how large tensor `{id}` is"));
        };
        let (dtype, dims) = read_shape(&kept.dtype, &kept.dims)?;
        if !fits(declared, Some(dtype), &dims) || byte_len(dtype, &dims).is_none() {
            let name = &declared.name;
            return Err(format!(
                "tensor `{id}` is output `{name}`, which is {declared}, but the lane keeps \
                 {dtype}{dims:?}"
            ));
        }
        Ok(KeptTensor { id: id.clone(), dtype, dims })
    };
    keeps.iter().map(read).collect()
}

/// A lane's account of its time, one for each step.
pub(crate) fn read_steps(
    sent: &[wire::StepTiming],
    steps: usize,
) -> Result<Vec<StepTiming>, String> {
    if sent.len() != steps {
        return Err(format!("times of {} steps for a program of {steps}", sent.len()));
    }
    let timing = |step: &wire::StepTiming| {
        let (run, readback) = (milliseconds(step.run_ms)?, milliseconds(step.readback_ms)?);
        Ok(StepTiming { run, readback })
    };
    sent.iter().map(timing).collect()
}

/// A time as a lane tells it.
pub(crate) fn milliseconds(value: f64) -> Result<Duration, String> {
    let time = Duration::try_from_secs_f64(value / 1e3).ok().filter(|time| *time <= LONGEST);
    time.ok_or_else(|| format!("{value} ms is no time that anything took"))
}

/// What a segment takes or gives, with the sizes that its dimensions were bound to.
pub(crate) fn bind(values: Vec<Value>, bound: &BTreeMap<String, usize>) -> Vec<Value> {
    let bind = |dim: Dim| match dim {
        Dim::Named(name) => bound.get(&name).map_or(Dim::Named(name), |&size| Dim::Fixed(size)),
        other => other,
    };
    let value = |value: Value| Value {
        dims: value.dims.map(|dims| dims.into_iter().map(bind).collect()),
        ..value
    };
    values.into_iter().map(value).collect()
}

/// Shapes for a first run on zeros: what is fixed, else what is usual. Empty where a type or a
/// shape is not known.
pub(crate) fn warm_up_shapes(inputs: &[Value]) -> Vec<TensorShape> {
    const USUAL_LENGTH: u64 = 16;
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size as u64,
        Dim::Named(name) if name.contains("seq") || name.contains("len") => USUAL_LENGTH,
        Dim::Named(_) | Dim::Unknown => 1,
    };
    let shape = |value: &Value| {
        let dtype = value.dtype.filter(|dtype| DTYPES.contains(dtype))?;
        let dims = value.dims.as_ref()?.iter().map(size).collect();
        Some(TensorShape { name: value.name.clone(), dtype: dtype.name().to_owned(), dims })
    };
    inputs.iter().map(shape).collect::<Option<Vec<_>>>().unwrap_or_default()
}
