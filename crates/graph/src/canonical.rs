//! What two exporters may write differently although it is the same operator.
//!
//! An operator in the table below hashes without its version (except where its meaning
//! changed) and without attributes that say what is the default anyway. One that is not in the
//! table hashes with its version and everything as written: less is found in common, never
//! too much.

use crate::proto::{AttributeProto, NodeProto};
use crate::validate::is_onnx;

/// How an operator of the standard domain is compared across versions.
pub(crate) struct Rule {
    /// Versions at which the meaning changed. Between two of them, all versions are equal.
    pub(crate) breaks: &'static [i64],
    /// Attributes that may be left out when they have this value.
    defaults: &'static [(&'static str, Default)],
    /// An attribute that later versions take as the second operand.
    pub(crate) operand_attribute: Option<&'static str>,
    /// Whether operands can be swapped without changing a bit of the result.
    pub(crate) commutes: bool,
    /// Whether the number of outputs is part of what the operator does.
    pub(crate) counts_outputs: bool,
}

enum Default {
    Int(i64),
    Float(f32),
    Text(&'static str),
    /// Every element has this value.
    Every(i64),
    /// All axes from the last to the first.
    Reversed,
}
use Default::{Every, Float, Int, Reversed, Text};

const PLAIN: Rule = Rule {
    breaks: &[],
    defaults: &[],
    operand_attribute: None,
    commutes: false,
    counts_outputs: false,
};

const fn defaults(defaults: &'static [(&'static str, Default)]) -> Rule {
    Rule { defaults, ..PLAIN }
}

const fn axes(defaults: &'static [(&'static str, Default)]) -> Rule {
    Rule { defaults, operand_attribute: Some("axes"), ..PLAIN }
}

/// The rule for an operator; `None` where nothing is known of it.
pub(crate) fn rule(domain: &str, operator: &str) -> Option<Rule> {
    match domain {
        "" | "ai.onnx" => onnx_rule(operator),
        "com.microsoft" => microsoft_rule(operator),
        _ => None,
    }
}

fn onnx_rule(operator: &str) -> Option<Rule> {
    Some(match operator {
        "Add" | "Mul" => Rule { commutes: true, ..PLAIN },
        "Sub" | "Div" | "Pow" | "Sqrt" | "Exp" | "Log" | "Neg" | "Abs" | "Erf" | "Tanh"
        | "Sigmoid" | "Relu" | "Floor" | "Ceil" | "Round" | "Sign" | "Reciprocal" | "Sin"
        | "Cos" | "Softplus" | "Softsign" | "HardSwish" | "Not" | "And" | "Or" | "Xor"
        | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "Max" | "Min"
        | "Where" | "MatMul" | "Slice" | "Expand" | "Tile" | "NonZero" | "Concat" | "Clip"
        | "PRelu" | "Range" | "Size" | "GlobalAveragePool" | "GlobalMaxPool" | "Einsum" => PLAIN,
        "OneHot" => defaults(&[("axis", Int(-1))]),
        "Transpose" => defaults(&[("perm", Reversed)]),
        "Mod" => defaults(&[("fmod", Int(0))]),
        "LeakyRelu" => defaults(&[("alpha", Float(0.01))]),
        "Elu" => defaults(&[("alpha", Float(1.0))]),
        "HardSigmoid" => defaults(&[("alpha", Float(0.2)), ("beta", Float(0.5))]),
        "Gelu" => defaults(&[("approximate", Text("none"))]),
        "Gemm" => defaults(&[
            ("alpha", Float(1.0)),
            ("beta", Float(1.0)),
            ("transA", Int(0)),
            ("transB", Int(0)),
        ]),
        "Gather" | "GatherElements" => defaults(&[("axis", Int(0))]),
        "GatherND" => defaults(&[("batch_dims", Int(0))]),
        "ScatterElements" => defaults(&[("axis", Int(0)), ("reduction", Text("none"))]),
        "ScatterND" => defaults(&[("reduction", Text("none"))]),
        "Reshape" => defaults(&[("allowzero", Int(0))]),
        "Flatten" => defaults(&[("axis", Int(1))]),
        "Shape" => defaults(&[("start", Int(0))]),
        "Cast" => defaults(&[("saturate", Int(1))]),
        "Trilu" => defaults(&[("upper", Int(1))]),
        "CumSum" => defaults(&[("exclusive", Int(0)), ("reverse", Int(0))]),
        "ArgMax" | "ArgMin" => {
            defaults(&[("axis", Int(0)), ("keepdims", Int(1)), ("select_last_index", Int(0))])
        }
        "TopK" => defaults(&[("axis", Int(-1)), ("largest", Int(1)), ("sorted", Int(1))]),
        "Pad" => defaults(&[("mode", Text("constant"))]),
        "DepthToSpace" => defaults(&[("mode", Text("DCR"))]),
        "LayerNormalization" => {
            defaults(&[("axis", Int(-1)), ("epsilon", Float(1e-5)), ("stash_type", Int(1))])
        }
        "InstanceNormalization" => defaults(&[("epsilon", Float(1e-5))]),
        "BatchNormalization" => Rule {
            defaults: &[
                ("epsilon", Float(1e-5)),
                ("momentum", Float(0.9)),
                ("training_mode", Int(0)),
            ],
            // Before 14, further outputs are what switches training on.
            counts_outputs: true,
            ..PLAIN
        },
        // The meaning changed at 13; `is_last_axis_softmax` knows the case in which it did not.
        "Softmax" | "LogSoftmax" => Rule { breaks: &[13], ..PLAIN },
        "Squeeze" | "Unsqueeze" => axes(&[]),
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1"
        | "ReduceL2" | "ReduceSumSquare" | "ReduceLogSum" | "ReduceLogSumExp" => {
            axes(&[("keepdims", Int(1)), ("noop_with_empty_axes", Int(0))])
        }
        "Split" => Rule {
            defaults: &[("axis", Int(0))],
            operand_attribute: Some("split"),
            counts_outputs: true,
            ..PLAIN
        },
        "Conv" => defaults(CONVOLUTION),
        "ConvTranspose" => defaults(&[
            ("auto_pad", Text("NOTSET")),
            ("group", Int(1)),
            ("pads", Every(0)),
            ("strides", Every(1)),
            ("dilations", Every(1)),
            ("output_padding", Every(0)),
        ]),
        "MaxPool" | "AveragePool" => defaults(&[
            ("auto_pad", Text("NOTSET")),
            ("ceil_mode", Int(0)),
            ("count_include_pad", Int(0)),
            ("storage_order", Int(0)),
            ("pads", Every(0)),
            ("strides", Every(1)),
            ("dilations", Every(1)),
        ]),
        "If" | "Loop" | "Scan" => Rule { breaks: &[11], counts_outputs: true, ..PLAIN },
        _ => return None,
    })
}

const CONVOLUTION: &[(&str, Default)] = &[
    ("auto_pad", Text("NOTSET")),
    ("group", Int(1)),
    ("pads", Every(0)),
    ("strides", Every(1)),
    ("dilations", Every(1)),
];

fn microsoft_rule(operator: &str) -> Option<Rule> {
    Some(match operator {
        "FusedMatMul" => defaults(&[
            ("alpha", Float(1.0)),
            ("transA", Int(0)),
            ("transB", Int(0)),
            ("transBatchA", Int(0)),
            ("transBatchB", Int(0)),
        ]),
        "FusedConv" => defaults(CONVOLUTION),
        "BiasGelu" | "Gelu" | "FastGelu" => PLAIN,
        "QuickGelu" => defaults(&[("alpha", Float(1.702))]),
        _ => return None,
    })
}

impl Rule {
    /// Which of the operator's meanings is in force at this version.
    pub(crate) fn meaning(&self, version: i64) -> u64 {
        self.breaks.iter().filter(|&&changed| changed <= version).count() as u64
    }

    /// Whether the attribute says what would hold without it.
    pub(crate) fn is_default(&self, attribute: &AttributeProto) -> bool {
        let default = self.defaults.iter().find(|(name, _)| *name == attribute.name);
        default.is_some_and(|(_, default)| match default {
            Int(value) => attribute.i.unwrap_or(0) == *value,
            Float(value) => attribute.f.unwrap_or(0.0).to_bits() == value.to_bits(),
            Text(value) => attribute.s.as_deref() == Some(value.as_bytes()),
            Every(value) => attribute.ints.iter().all(|int| int == value),
            Reversed => attribute.ints.iter().rev().copied().eq(0..attribute.ints.len() as i64),
        })
    }
}

/// Operators that give another result each time, so nothing may ever be equal to them.
pub(crate) fn is_random(node: &NodeProto) -> bool {
    let operator = node.op_type.as_str();
    operator.starts_with("Random")
        || matches!(operator, "Multinomial" | "Bernoulli" | "Sampling")
        // The third operand of Dropout switches training on.
        || operator == "Dropout" && node.input.get(2).is_some_and(|name| !name.is_empty())
}

/// The axis of a `Softmax`, if it is the last one. There, the version before 13 (which
/// flattens all axes from `axis` on) and the one after it (which takes just `axis`) agree.
pub(crate) fn is_last_axis_softmax(node: &NodeProto, version: i64, rank: Option<usize>) -> bool {
    if !matches!(node.op_type.as_str(), "Softmax" | "LogSoftmax") || !is_onnx(&node.domain) {
        return false;
    }
    let attribute = node.attribute.iter().find(|attribute| attribute.name == "axis");
    let axis = match attribute {
        Some(attribute) => attribute.i.unwrap_or(0),
        None if version < 13 => 1,
        None => -1,
    };
    axis == -1 || rank.is_some_and(|rank| rank > 0 && axis == rank as i64 - 1)
}

/// Whether a convolution's `kernel_shape` repeats what its weight's dimensions say.
pub(crate) fn repeats_kernel(
    node: &NodeProto,
    attribute: &AttributeProto,
    weight: Option<&[usize]>,
) -> bool {
    let convolution = matches!(node.op_type.as_str(), "Conv" | "FusedConv" | "ConvTranspose");
    convolution
        && attribute.name == "kernel_shape"
        && weight.is_some_and(|dims| {
            dims.iter().skip(2).map(|&dim| dim as i64).eq(attribute.ints.iter().copied())
        })
}
