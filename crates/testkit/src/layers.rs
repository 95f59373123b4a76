//! The pieces that architectures are made of, written with the nodes that exporters write.

use holdfast_graph::proto::AttributeProto;
use holdfast_graph::{DataType, Dim, Element, Model, Tensor};

use crate::attribute::{float, int, ints};
use crate::builder::Builder;
use crate::error::BuildError;
use crate::recipe::{Adapter, LayerNorm, Recipe, Size};
use crate::weights::{Init, Weights};

/// A model under construction.
pub(crate) struct Net<'a> {
    builder: Builder,
    recipe: &'a Recipe,
}

/// One entry of the target of a reshape.
pub(crate) enum Part<'a> {
    /// As large as this dimension of a value.
    Of(&'a str, i64),
    /// This large; -1 is what is left.
    Fixed(i64),
}

impl<'a> Net<'a> {
    pub(crate) fn new(name: &str, recipe: &'a Recipe) -> Result<Net<'a>, BuildError> {
        recipe.check()?;
        let builder = Builder::with_weights(name, recipe.weights.clone());
        Ok(Net { builder: builder.opset(recipe.style.opset), recipe })
    }

    pub(crate) fn size(&self) -> &'a Size {
        &self.recipe.size
    }

    /// Draws further weights from another source.
    pub(crate) fn draw_from(&mut self, weights: Weights) {
        self.builder.draw_from(weights);
    }

    pub(crate) fn finish(self) -> Result<Model, BuildError> {
        self.builder.finish()
    }

    pub(crate) fn within<T>(&mut self, part: &str, build: impl FnOnce(&mut Net<'a>) -> T) -> T {
        self.builder.enter(part);
        let built = build(self);
        self.builder.leave();
        built
    }

    pub(crate) fn input(&mut self, name: &str, dtype: DataType, dims: &[Dim]) -> String {
        self.builder.input(name, dtype, dims)
    }

    pub(crate) fn output(&mut self, name: &str, value: &str, dims: &[Dim]) {
        self.builder.output(name, value, DataType::F32, dims);
    }

    pub(crate) fn weight(&mut self, name: &str, dims: &[usize], init: Init) -> String {
        self.builder.weight(name, dims, init)
    }

    pub(crate) fn op(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.builder.node(operator, inputs, &[])
    }

    pub(crate) fn op_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        with: &[AttributeProto],
    ) -> String {
        self.builder.node(operator, inputs, with)
    }

    pub(crate) fn scalar<T: Element>(&mut self, value: T) -> String {
        self.constant(&[], &[value])
    }

    pub(crate) fn list<T: Element>(&mut self, values: &[T]) -> String {
        self.constant(&[values.len()], values)
    }

    pub(crate) fn constant<T: Element>(&mut self, dims: &[usize], values: &[T]) -> String {
        let tensor = Tensor::from_slice(dims, values).expect("dimensions written for the values");
        self.builder.constant(&tensor)
    }

    pub(crate) fn cast(&mut self, x: &str, to: DataType) -> String {
        self.op_with("Cast", &[x], &[int("to", i64::from(to.to_onnx()))])
    }

    pub(crate) fn transpose(&mut self, x: &str, permutation: &[i64]) -> String {
        self.op_with("Transpose", &[x], &[ints("perm", permutation)])
    }

    pub(crate) fn concat(&mut self, values: &[&str], axis: i64) -> String {
        self.op_with("Concat", values, &[int("axis", axis)])
    }

    pub(crate) fn unsqueeze(&mut self, x: &str, axis: i64) -> String {
        self.with_axis("Unsqueeze", x, axis, 13)
    }

    pub(crate) fn squeeze(&mut self, x: &str, axis: i64) -> String {
        self.with_axis("Squeeze", x, axis, 13)
    }

    pub(crate) fn mean(&mut self, x: &str, axis: i64) -> String {
        self.with_axis("ReduceMean", x, axis, 18)
    }

    pub(crate) fn sum(&mut self, x: &str, axis: i64) -> String {
        self.with_axis("ReduceSum", x, axis, 13)
    }

    pub(crate) fn length(&mut self, x: &str, axis: i64) -> String {
        self.with_axis("ReduceL2", x, axis, 18)
    }

    /// Axes became an operand of these operators, at different versions.
    fn with_axis(&mut self, operator: &str, x: &str, axis: i64, operand_since: i64) -> String {
        if self.recipe.style.opset < operand_since {
            return self.op_with(operator, &[x], &[ints("axes", &[axis])]);
        }
        let axes = self.list(&[axis]);
        self.op(operator, &[x, &axes])
    }

    /// The size of one dimension, as a scalar.
    pub(crate) fn dimension(&mut self, x: &str, axis: i64) -> String {
        let shape = self.op("Shape", &[x]);
        let axis = self.scalar(axis);
        self.op_with("Gather", &[&shape, &axis], &[int("axis", 0)])
    }

    /// The numbers from `start` up to `end`, both scalars.
    pub(crate) fn range(&mut self, start: &str, end: &str) -> String {
        let one = self.scalar(1i64);
        self.op("Range", &[start, end, &one])
    }

    /// `x` from `start` up to `end` (one entry each) along one axis.
    pub(crate) fn slice(&mut self, x: &str, start: &str, end: &str, axis: i64) -> String {
        let axes = self.list(&[axis]);
        let steps = self.list(&[1i64]);
        self.op("Slice", &[x, start, end, &axes, &steps])
    }

    /// A shape made at run time: Shape → Gather → Unsqueeze → Concat.
    pub(crate) fn shape(&mut self, parts: &[Part<'_>]) -> String {
        let mut entries = Vec::with_capacity(parts.len());
        for part in parts {
            entries.push(match part {
                Part::Of(value, axis) => {
                    let size = self.dimension(value, *axis);
                    self.unsqueeze(&size, 0)
                }
                Part::Fixed(size) => self.list(&[*size]),
            });
        }
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        self.concat(&entries, 0)
    }

    pub(crate) fn reshape(&mut self, x: &str, parts: &[Part<'_>]) -> String {
        let shape = self.shape(parts);
        self.op("Reshape", &[x, &shape])
    }

    /// One copy of a learned token for every item of a batch, the way torch writes `expand`.
    pub(crate) fn for_each_item(&mut self, token: &str, batch_of: &str) -> String {
        let shape = self.shape(&[Part::Of(batch_of, 0), Part::Fixed(-1), Part::Fixed(-1)]);
        let rank = self.list(&[3i64]);
        let one = Tensor::from_slice(&[1], &[1i64]).expect("one value for one element");
        let with = [crate::attribute::tensor("value", &one)];
        let ones = self.op_with("ConstantOfShape", &[&rank], &with);
        let minus_one = self.scalar(-1i64);
        let kept = self.op("Mul", &[&ones, &minus_one]);
        let kept = self.op("Equal", &[&shape, &kept]);
        let shape = self.op("Where", &[&kept, &ones, &shape]);
        self.op("Expand", &[token, &shape])
    }

    /// A projection with a bias, and the adapter's addition where it has one.
    pub(crate) fn linear(&mut self, part: &str, x: &str, from: usize, to: usize) -> String {
        self.within(part, |net| {
            let weight = net.weight("weight", &[from, to], Init::fan_in(from));
            let product = net.op("MatMul", &[x, &weight]);
            let bias = net.weight("bias", &[to], Init::bias());
            let y = net.op("Add", &[&bias, &product]);
            net.adapt(part, x, y, from, to)
        })
    }

    /// A projection without a bias, and the adapter's addition where it has one.
    pub(crate) fn projection(&mut self, part: &str, x: &str, from: usize, to: usize) -> String {
        self.scaled_projection(part, x, [from, to], Init::fan_in(from))
    }

    pub(crate) fn scaled_projection(
        &mut self,
        part: &str,
        x: &str,
        [from, to]: [usize; 2],
        init: Init,
    ) -> String {
        self.within(part, |net| {
            let weight = net.weight("weight", &[from, to], init);
            let y = net.op("MatMul", &[x, &weight]);
            net.adapt(part, x, y, from, to)
        })
    }

    fn adapt(&mut self, part: &str, x: &str, y: String, from: usize, to: usize) -> String {
        /// What the architectures call their query and value projections.
        const ADAPTED: [&str; 8] =
            ["query", "value", "q_proj", "v_proj", "q_lin", "v_lin", "q", "v"];
        let name = part.rsplit('/').next().unwrap_or(part);
        let Some(Adapter { rank, scale, weights }) = &self.recipe.adapter else { return y };
        if !ADAPTED.contains(&name) {
            return y;
        }
        let builder = &mut self.builder;
        let down =
            builder.weight_from(weights, "lora_A.weight", &[from, *rank], Init::fan_in(from));
        // Training starts `B` at zero; that of a trained adapter is small.
        let up = builder.weight_from(weights, "lora_B.weight", &[*rank, to], Init::bias());
        let low = self.op("MatMul", &[x, &down]);
        let addition = self.op("MatMul", &[&low, &up]);
        let scale = self.scalar(*scale);
        let addition = self.op("Mul", &[&addition, &scale]);
        self.op("Add", &[&y, &addition])
    }

    /// A projection of one row per item, which exporters write as `Gemm`.
    pub(crate) fn gemm(&mut self, part: &str, x: &str, from: usize, to: usize) -> String {
        self.within(part, |net| {
            let weight = net.weight("weight", &[to, from], Init::fan_in(from));
            let bias = net.weight("bias", &[to], Init::bias());
            let with = [float("alpha", 1.0), float("beta", 1.0), int("transB", 1)];
            net.op_with("Gemm", &[x, &weight, &bias], &with)
        })
    }

    /// The rows of a table that ids name.
    pub(crate) fn embedding(&mut self, part: &str, ids: &str, rows: usize) -> String {
        let hidden = self.size().hidden;
        self.within(part, |net| {
            let table = net.weight("weight", &[rows, hidden], Init::embedding());
            net.op("Gather", &[&table, ids])
        })
    }

    pub(crate) fn layer_norm(&mut self, part: &str, x: &str, epsilon: f32) -> String {
        let hidden = self.size().hidden;
        self.within(part, |net| {
            let scale = net.weight("weight", &[hidden], Init::scale());
            let bias = net.weight("bias", &[hidden], Init::bias());
            if net.recipe.style.layer_norm == LayerNorm::Operator {
                let with = [int("axis", -1), float("epsilon", epsilon)];
                return net.op_with("LayerNormalization", &[x, &scale, &bias], &with);
            }
            let mean = net.mean(x, -1);
            let centred = net.op("Sub", &[x, &mean]);
            let two = net.scalar(2.0f32);
            let squared = net.op("Pow", &[&centred, &two]);
            let variance = net.mean(&squared, -1);
            let epsilon = net.scalar(epsilon);
            let variance = net.op("Add", &[&variance, &epsilon]);
            let deviation = net.op("Sqrt", &[&variance]);
            let normal = net.op("Div", &[&centred, &deviation]);
            let scaled = net.op("Mul", &[&normal, &scale]);
            net.op("Add", &[&scaled, &bias])
        })
    }

    /// Root-mean-square normalisation, always decomposed.
    pub(crate) fn rms_norm(&mut self, part: &str, x: &str, epsilon: f32) -> String {
        let hidden = self.size().hidden;
        self.within(part, |net| {
            let scale = net.weight("weight", &[hidden], Init::scale());
            let two = net.scalar(2.0f32);
            let squared = net.op("Pow", &[x, &two]);
            let variance = net.mean(&squared, -1);
            let epsilon = net.scalar(epsilon);
            let variance = net.op("Add", &[&variance, &epsilon]);
            let root = net.op("Sqrt", &[&variance]);
            let one = net.scalar(1.0f32);
            let inverse = net.op("Div", &[&one, &root]);
            let normal = net.op("Mul", &[x, &inverse]);
            net.op("Mul", &[&scale, &normal])
        })
    }

    /// The exact Gelu: Div, Erf, Add, Mul, Mul.
    pub(crate) fn gelu(&mut self, x: &str) -> String {
        let root_two = self.scalar(std::f32::consts::SQRT_2);
        let inner = self.op("Div", &[x, &root_two]);
        let inner = self.op("Erf", &[&inner]);
        let one = self.scalar(1.0f32);
        let inner = self.op("Add", &[&inner, &one]);
        let product = self.op("Mul", &[x, &inner]);
        let half = self.scalar(0.5f32);
        self.op("Mul", &[&product, &half])
    }

    /// CLIP's quick Gelu.
    pub(crate) fn quick_gelu(&mut self, x: &str) -> String {
        let factor = self.scalar(1.702f32);
        let inner = self.op("Mul", &[x, &factor]);
        let gate = self.op("Sigmoid", &[&inner]);
        self.op("Mul", &[x, &gate])
    }

    pub(crate) fn silu(&mut self, x: &str) -> String {
        let gate = self.op("Sigmoid", &[x]);
        self.op("Mul", &[x, &gate])
    }

    /// Positions `0..length` of ids, cut from the table of all positions as torch exports it.
    pub(crate) fn positions(&mut self, ids: &str) -> String {
        let count = self.size().positions;
        let all: Vec<i64> = (0..count as i64).collect();
        let all = self.constant(&[1, count], &all);
        let length = self.dimension(ids, 1);
        let end = self.unsqueeze(&length, 0);
        let start = self.list(&[0i64]);
        self.slice(&all, &start, &end, 1)
    }
}
