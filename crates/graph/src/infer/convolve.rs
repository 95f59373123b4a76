//! Convolutions and pooling.

use super::Reason;
use super::node::{Node, Shapes, invalid, one, product, size, times};
use super::operator::Work::{Formula, PerInput};
use super::operator::{Operator, row};
use super::types::{SAME, Type};
use crate::DataType;

const I32: &[Type] = &[Type::Is(DataType::I32)];
const WITH_INDICES: &[Type] = &[Type::Same(0), Type::Is(DataType::I64)];

pub(super) const ONNX: &[Operator] = &[
    row("Conv", SAME, |node| convolved(node, 1), Formula(|node, dims| work(node, dims, 1))),
    row("ConvInteger", I32, |node| convolved(node, 1), Formula(|node, dims| work(node, dims, 1))),
    row(
        "QLinearConv",
        &[Type::Same(7)],
        |node| convolved(node, 3),
        Formula(|node, dims| work(node, dims, 3)),
    ),
    row("DeformConv", SAME, |node| convolved(node, 1), Formula(|node, dims| work(node, dims, 1))),
    row("ConvTranspose", SAME, transposed, Formula(transposed_work)),
    row("MaxPool", WITH_INDICES, pooled, Formula(pool_work)),
    row("AveragePool", SAME, pooled, Formula(pool_work)),
    row("LpPool", SAME, pooled, Formula(pool_work)),
    row("GlobalMaxPool", SAME, pooled_whole, PerInput(1)),
    row("GlobalAveragePool", SAME, pooled_whole, PerInput(1)),
    row("GlobalLpPool", SAME, pooled_whole, PerInput(1)),
];

pub(super) const MICROSOFT: &[Operator] = &[
    row("FusedConv", SAME, |node| convolved(node, 1), Formula(|node, dims| work(node, dims, 1))),
    row("QLinearAveragePool", SAME, pooled, Formula(pool_work)),
    row("QLinearGlobalAveragePool", SAME, pooled_whole, PerInput(1)),
];

/// A window that slides over the spatial dimensions.
struct Window {
    kernel: Vec<i128>,
    strides: Vec<i128>,
    dilations: Vec<i128>,
    pads: Vec<i128>,
}

impl Window {
    fn read(node: &Node<'_>, kernel: &[i64]) -> Result<Window, Reason> {
        let rank = kernel.len();
        let list = |name: &str, length: usize, default: i64| match node.attribute_ints(name) {
            None | Some([]) => Ok(vec![i128::from(default); length]),
            Some(values) if values.len() == length => {
                Ok(values.iter().map(|&value| i128::from(value)).collect())
            }
            Some(values) => Err(invalid(format!("`{name}` {values:?} does not fit rank {rank}"))),
        };
        let window = Window {
            kernel: kernel.iter().map(|&size| i128::from(size)).collect(),
            strides: list("strides", rank, 1)?,
            dilations: list("dilations", rank, 1)?,
            pads: list("pads", 2 * rank, 0)?,
        };
        let positive = |values: &[i128]| values.iter().all(|&value| value > 0);
        if !positive(&window.kernel) || !positive(&window.strides) || !positive(&window.dilations) {
            return Err(invalid("kernel, strides and dilations must be positive"));
        }
        Ok(window)
    }

    /// What one placement of the kernel covers.
    fn extent(&self, axis: usize) -> i128 {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    fn slide(&self, node: &Node<'_>, spatial: &[usize]) -> Result<Vec<usize>, Reason> {
        let same = matches!(node.attribute_text("auto_pad"), Some("SAME_UPPER" | "SAME_LOWER"));
        let valid = node.attribute_text("auto_pad") == Some("VALID");
        let ceil = node.flag("ceil_mode");
        let rank = self.kernel.len();
        let along = |axis: usize| {
            let (given, stride) = (spatial[axis] as i128, self.strides[axis]);
            if same {
                return size((given + stride - 1) / stride);
            }
            let (before, after) =
                if valid { (0, 0) } else { (self.pads[axis], self.pads[rank + axis]) };
            let room = given + before + after - self.extent(axis);
            if room < 0 {
                return Err(invalid(format!(
                    "the kernel is larger than {given} along axis {axis}"
                )));
            }
            let mut steps = if ceil { (room + stride - 1) / stride } else { room / stride };
            // A last window that would start in the padding behind the input is left out.
            if ceil && steps * stride >= given + before {
                steps -= 1;
            }
            size(steps + 1)
        };
        (0..rank).map(along).collect()
    }
}

fn spatial(dims: &[usize]) -> Result<(usize, usize, &[usize]), Reason> {
    match dims {
        [batch, channels, spatial @ ..] => Ok((*batch, *channels, spatial)),
        _ => Err(invalid(format!("{dims:?} has no channels"))),
    }
}

/// The kernel as the weight has it, unless an attribute says otherwise.
fn kernel(node: &Node<'_>, rank: usize, weight: &[usize]) -> Result<Vec<i64>, Reason> {
    let kernel = match node.attribute_ints("kernel_shape") {
        None | Some([]) => weight.iter().skip(2).map(|&dim| dim as i64).collect(),
        Some(kernel) => kernel.to_vec(),
    };
    if kernel.len() != rank {
        return Err(invalid(format!("kernel {kernel:?} does not fit {rank} spatial dimensions")));
    }
    Ok(kernel)
}

fn convolved(node: &Node<'_>, weight: usize) -> Shapes {
    let (_, channels, _) = spatial(node.dims(0)?)?;
    let dims = node.dims(weight)?;
    let depth = dims.get(1).copied().unwrap_or(0);
    if product(&[depth, groups(node)?])? != channels {
        return Err(invalid(format!("weight {dims:?} does not fit {channels} channels")));
    }
    windowed(node, weight)
}

/// A convolution whose weight may be padded to more channels than its input has.
pub(super) fn windowed(node: &Node<'_>, weight: usize) -> Shapes {
    let (batch, _, spatial) = spatial(node.dims(0)?)?;
    let weight = node.dims(weight)?;
    let kernel = kernel(node, spatial.len(), weight)?;
    let mut dims = vec![batch, weight.first().copied().unwrap_or(0)];
    dims.extend(Window::read(node, &kernel)?.slide(node, spatial)?);
    one(dims)
}

fn groups(node: &Node<'_>) -> Result<usize, Reason> {
    size(node.attribute_int("group").unwrap_or(1))
}

/// Each output element is a sum over the kernel and the channels of one group; a bias, a fused
/// addition and a fused activation are one operation each.
pub(super) fn work(node: &Node<'_>, dims: &[usize], weight: usize) -> Result<u64, Reason> {
    let per_output = node.dims(weight)?.get(1..).map_or(0, times).saturating_mul(2);
    let quantized = weight != 1 || node.operator() == "ConvInteger";
    let bias = !quantized && node.has(2);
    let sum = !quantized && node.operator() != "DeformConv" && node.has(3);
    let activation = node.attribute_text("activation").is_some_and(|name| !name.is_empty());
    let further = u64::from(bias) + u64::from(sum) + u64::from(activation);
    Ok(times(dims).saturating_mul(per_output.saturating_add(further)))
}

fn transposed(node: &Node<'_>) -> Shapes {
    let (batch, channels, spatial) = spatial(node.dims(0)?)?;
    let weight = node.dims(1)?;
    let kernel = kernel(node, spatial.len(), weight)?;
    if weight.first() != Some(&channels) {
        return Err(invalid(format!("weight {weight:?} does not fit {channels} channels")));
    }
    let window = Window::read(node, &kernel)?;
    let mut dims = vec![batch, product(&[weight.get(1).copied().unwrap_or(0), groups(node)?])?];
    let given = |name: &str, axis: usize| {
        node.attribute_ints(name).and_then(|values| values.get(axis)).copied()
    };
    let same = matches!(node.attribute_text("auto_pad"), Some("SAME_UPPER" | "SAME_LOWER"));
    let rank = kernel.len();
    for (axis, &dim) in spatial.iter().enumerate() {
        let (dim, stride) = (dim as i128, window.strides[axis]);
        let full = stride * (dim - 1)
            + i128::from(given("output_padding", axis).unwrap_or(0))
            + window.extent(axis);
        dims.push(match given("output_shape", axis) {
            Some(wanted) => size(wanted)?,
            None if same => size(dim * stride)?,
            None if node.attribute_text("auto_pad") == Some("VALID") => size(full)?,
            None => size(full - window.pads[axis] - window.pads[rank + axis])?,
        });
    }
    one(dims)
}

/// Each input element is spread over the kernel and the output channels of one group.
fn transposed_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let spread = node.dims(1)?.get(1..).map_or(0, times).saturating_mul(2);
    let bias = if node.has(2) { times(dims) } else { 0 };
    Ok(node.input(0)?.elements().saturating_mul(spread).saturating_add(bias))
}

pub(super) fn pooled(node: &Node<'_>) -> Shapes {
    let (batch, channels, spatial) = spatial(node.dims(0)?)?;
    let kernel = kernel(node, spatial.len(), &[])?;
    let mut dims = vec![batch, channels];
    dims.extend(Window::read(node, &kernel)?.slide(node, spatial)?);
    Ok(vec![dims.clone().into(), dims.into()])
}

pub(super) fn pool_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let kernel = node.attribute_ints("kernel_shape").unwrap_or_default();
    let kernel = kernel.iter().map(|&dim| size(dim)).collect::<Result<Vec<_>, _>>()?;
    Ok(times(dims).saturating_mul(times(&kernel)))
}

pub(super) fn pooled_whole(node: &Node<'_>) -> Shapes {
    let (batch, channels, spatial) = spatial(node.dims(0)?)?;
    let mut dims = vec![batch, channels];
    dims.extend(spatial.iter().map(|_| 1));
    one(dims)
}
