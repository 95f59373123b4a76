//! Which class an operator belongs to: those of ONNX, and those that ONNX Runtime makes of them.
//!
//! A table rather than a rule, because fused names say little of what they do. Prefixes of
//! quantised operators are taken off first, so `QLinearMul` costs like `Mul`.

use crate::features::OperatorClass;

const MATMUL: &[&str] = &[
    "DFT",
    "DynamicQuantizeMatMul",
    "Einsum",
    "FusedGemm",
    "FusedMatMul",
    "FusedMatMulActivation",
    "GemmFastGelu",
    "GemmFloat8",
    "Gemm",
    "MatMul",
    "MatMulBnb4",
    "MatMulFpQ4",
    "MatMulInteger",
    "MatMulInteger16",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "QGemm",
    "QMoE",
    "MoE",
    "STFT",
    "SparseToDenseMatMul",
    "TransposeMatMul",
];

const CONVOLUTION: &[&str] = &[
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "ConvTransposeWithDynamicPads",
    "DeformConv",
    "FusedConv",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "LpPool",
    "MaxPool",
    "MaxUnpool",
    "MaxpoolWithMask",
    "NhwcConv",
    "NhwcFusedConv",
    "NhwcMaxPool",
    "QLinearConv",
];

const ATTENTION: &[&str] = &[
    "Attention",
    "DecoderAttention",
    "DecoderMaskedMultiHeadAttention",
    "DecoderMaskedSelfAttention",
    "GroupQueryAttention",
    "LongformerAttention",
    "MultiHeadAttention",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "PagedAttention",
    "QAttention",
    "QOrderedAttention",
    "SparseAttention",
];

const NORMALISATION: &[&str] = &[
    "ArgMax",
    "ArgMin",
    "BatchNormalization",
    "BiasSoftmax",
    "CumProd",
    "CumSum",
    "EmbedLayerNormalization",
    "GroupNorm",
    "GroupNormalization",
    "Hardmax",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "QEmbedLayerNormalization",
    "RMSNormalization",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumInteger",
    "ReduceSumSquare",
    "SimplifiedLayerNormalization",
    "SkipGroupNorm",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "Softmax",
    "TopK",
];

const GATHER: &[&str] = &[
    "CenterCropPad",
    "Col2Im",
    "Compress",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "DepthToSpace",
    "Expand",
    "ExpandDims",
    "EyeLike",
    "Flatten",
    "Gather",
    "GatherBlockQuantized",
    "GatherElements",
    "GatherND",
    "GridSample",
    "Identity",
    "NonZero",
    "OneHot",
    "Pad",
    "Range",
    "ReorderInput",
    "ReorderOutput",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "TensorScatter",
    "Tile",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Upsample",
];

const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Bernoulli",
    "BiasAdd",
    "BiasDropout",
    "BiasGelu",
    "BiasSplitGelu",
    "BitCast",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "BlackmanWindow",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "DynamicQuantizeLinear",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "FastGelu",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HammingWindow",
    "HannWindow",
    "HardSigmoid",
    "HardSwish",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "MelWeightMatrix",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "MulInteger",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "QuantizeLinear",
    "QuickGelu",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Reciprocal",
    "RelativePositionBias",
    "Relu",
    "RotaryEmbedding",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
];

impl OperatorClass {
    /// The class of an operator, by its name. One that is not known is [`Control`], as are loops,
    /// branches and recurrent networks.
    ///
    /// [`Control`]: OperatorClass::Control
    pub fn of(operator: &str) -> OperatorClass {
        exact(operator)
            .or_else(|| {
                let bare = ["QLinear", "QOrdered", "Nhwc"]
                    .into_iter()
                    .find_map(|prefix| operator.strip_prefix(prefix))?;
                exact(bare)
            })
            .unwrap_or(OperatorClass::Control)
    }

    /// Its place in [`OperatorClass::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            OperatorClass::Matmul => "matmul",
            OperatorClass::Convolution => "convolution",
            OperatorClass::Attention => "attention",
            OperatorClass::Normalisation => "normalisation",
            OperatorClass::Elementwise => "elementwise",
            OperatorClass::Gather => "gather",
            OperatorClass::Control => "control",
        }
    }
}

fn exact(operator: &str) -> Option<OperatorClass> {
    let tables = [
        (MATMUL, OperatorClass::Matmul),
        (CONVOLUTION, OperatorClass::Convolution),
        (ATTENTION, OperatorClass::Attention),
        (NORMALISATION, OperatorClass::Normalisation),
        (ELEMENTWISE, OperatorClass::Elementwise),
        (GATHER, OperatorClass::Gather),
    ];
    let holds = |(names, _): &(&[&str], _)| names.contains(&operator);
    tables.into_iter().find(holds).map(|(_, class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(class: OperatorClass, operators: &[&str]) {
        for operator in operators {
            assert_eq!(OperatorClass::of(operator), class, "{operator}");
        }
    }

    #[test]
    fn fused_operators_cost_like_what_they_were_made_of() {
        check(OperatorClass::Matmul, &["MatMul", "FusedMatMul", "MatMulNBits", "QLinearMatMul"]);
        check(OperatorClass::Convolution, &["FusedConv", "NhwcMaxPool", "QLinearAveragePool"]);
        check(OperatorClass::Attention, &["Attention", "MultiHeadAttention", "QAttention"]);
        check(
            OperatorClass::Normalisation,
            &["SkipLayerNormalization", "EmbedLayerNormalization", "QLinearSoftmax"],
        );
        check(OperatorClass::Elementwise, &["BiasGelu", "FastGelu", "QLinearAdd", "Cast"]);
        check(OperatorClass::Gather, &["Gather", "GatherBlockQuantized", "QLinearConcat"]);
    }

    #[test]
    fn what_is_not_known_is_control() {
        check(OperatorClass::Control, &["If", "Loop", "LSTM", "DynamicQuantizeLSTM", "", "MyOp"]);
    }

    #[test]
    fn no_operator_is_in_two_tables() {
        let all = [MATMUL, CONVOLUTION, ATTENTION, NORMALISATION, ELEMENTWISE, GATHER].concat();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn indices_follow_the_order_of_all() {
        for (index, class) in OperatorClass::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), index, "{}", class.name());
        }
    }
}
