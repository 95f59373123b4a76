//! Programs and tensors as the wire has them, and back, with everything checked on the way in.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use holdfast_graph::{DataType, Dim, Tensor, Value};
use holdfast_wire::{self as wire, BodyWriter, OutputTensor, TensorShape, TensorSlice};

use super::state::LoadedSegment;
use crate::check::{check_fits, fits, no_such};
use crate::error::DeviceError;
use crate::program::{Input, Output, Program, Returned, StepTiming};
use crate::segment::SegmentId;

/// The element types that the engine in a browser takes.
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

/// A program for the wire: its steps, its body, and how many bytes its inputs have.
pub(crate) struct Encoded {
    pub(crate) steps: Vec<wire::Step>,
    pub(crate) body: Vec<Bytes>,
    pub(crate) input_bytes: u64,
}

/// Encodes a program, after checking all that can be checked on this side.
pub(crate) fn encode_program(
    program: &Program,
    segments: &HashMap<SegmentId, LoadedSegment>,
) -> Result<Encoded, DeviceError> {
    let mut body = BodyWriter::default();
    let mut steps = Vec::new();
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
                    wire::Input::Inline { value: push_tensor(&mut body, tensor)? }
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
            if !segment.outputs.iter().any(|declared| declared.name == *name) {
                return Err(no_such(&segment.outputs, name, number, "output"));
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
    Ok(Encoded { steps, body: body.finish(), input_bytes })
}

/// Puts a tensor into a body.
pub(crate) fn push_tensor(
    body: &mut BodyWriter,
    tensor: &Tensor,
) -> Result<TensorSlice, DeviceError> {
    if !DTYPES.contains(&tensor.dtype()) {
        let message = format!("a browser's engine takes no tensors of {}", tensor.dtype());
        return Err(DeviceError::caller(message));
    }
    let dims = tensor.dims().iter().map(|&dim| dim as u64).collect();
    Ok(body.push(tensor.dtype().name(), dims, tensor.bytes().clone()))
}

/// A tensor out of the body of a message. The error says how it does not lie there.
pub fn read_tensor(slice: &TensorSlice, body: &Bytes) -> Result<Tensor, String> {
    let dtype = DataType::from_name(&slice.dtype)
        .ok_or_else(|| format!("there is no element type `{}`", slice.dtype))?;
    let dims = slice.dims.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| format!("no tensor has the dimensions {:?}", slice.dims))?;
    let bytes = slice.bytes(body).map_err(|error| error.to_string())?;
    Tensor::new(dtype, dims, bytes).map_err(|error| error.to_string())
}

/// The outputs that a lane sent, in the order in which the program names them; all that it was
/// to return and nothing else, each as its segment declares it.
pub(crate) fn read_outputs(
    program: &Program,
    segments: &HashMap<SegmentId, LoadedSegment>,
    sent: &[(Vec<OutputTensor>, Bytes)],
) -> Result<Vec<Returned>, String> {
    let mut arrived: HashMap<(usize, &str), Tensor> = HashMap::new();
    for (outputs, body) in sent {
        for OutputTensor { step, name, value } in outputs {
            arrived.insert((*step as usize, name), read_tensor(value, body)?);
        }
    }
    let mut returned = Vec::new();
    for (number, step) in program.steps.iter().enumerate() {
        for (name, _) in step.outputs.iter().filter(|(_, output)| output.is_returned()) {
            let tensor = arrived
                .remove(&(number, name.as_str()))
                .ok_or_else(|| format!("output `{name}` of step {number} is missing"))?;
            let declared = segments
                .get(&step.segment)
                .and_then(|segment| segment.outputs.iter().find(|declared| declared.name == *name));
            if let Some(declared) = declared
                && !fits(declared, Some(tensor.dtype()), tensor.dims())
            {
                return Err(format!(
                    "output `{name}` of step {number} is {declared}, but the lane sent {}{:?}",
                    tensor.dtype(),
                    tensor.dims()
                ));
            }
            returned.push(Returned { step: number, name: name.clone(), tensor });
        }
    }
    match arrived.into_keys().next() {
        Some((step, name)) => Err(format!("nobody asked for output `{name}` of step {step}")),
        None => Ok(returned),
    }
}

/// A lane's account of its time.
pub(crate) fn read_steps(steps: &[wire::StepTiming]) -> Vec<StepTiming> {
    let timing = |step: &wire::StepTiming| StepTiming {
        run: milliseconds(step.run_ms),
        readback: milliseconds(step.readback_ms),
    };
    steps.iter().map(timing).collect()
}

/// Milliseconds as a lane tells them.
pub(crate) fn milliseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value / 1e3).unwrap_or_default()
}

/// Shapes for a first run on zeros: what is bound, else what is usual. Empty where a type or a
/// shape is not known.
pub(crate) fn warm_up_shapes(
    inputs: &[Value],
    bound: &std::collections::BTreeMap<String, usize>,
) -> Vec<TensorShape> {
    const USUAL_LENGTH: u64 = 16;
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size as u64,
        Dim::Named(name) => bound.get(name).map_or_else(
            || if name.contains("seq") || name.contains("len") { USUAL_LENGTH } else { 1 },
            |&size| size as u64,
        ),
        Dim::Unknown => 1,
    };
    let shape = |value: &Value| {
        let dtype = value.dtype.filter(|dtype| DTYPES.contains(dtype))?;
        let dims = value.dims.as_ref()?.iter().map(size).collect();
        Some(TensorShape { name: value.name.clone(), dtype: dtype.name().to_owned(), dims })
    };
    inputs.iter().map(shape).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// What becomes of a tensor that a program kept: its name.
pub(crate) fn kept_names(program: &Program) -> impl Iterator<Item = &crate::TensorId> {
    program.steps.iter().flat_map(|step| &step.outputs).filter_map(|(_, output)| match output {
        Output::Keep(id) | Output::ReturnAndKeep(id) => Some(id),
        Output::Return | Output::Pass => None,
    })
}
