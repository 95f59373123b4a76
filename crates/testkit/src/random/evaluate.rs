//! A reference for random graphs: their few operators on small matrices, without an engine.
//!
//! It knows nothing of structures, so it can tell independently whether two graphs compute
//! the same.

use std::collections::{BTreeMap, HashMap};

use holdfast_graph::proto::{AttributeProto, NodeProto};
use holdfast_graph::{Dim, Model, Tensor, TensorError, Value, node_label, topology, weights};

use super::SIDE;
use crate::weights::{Init, Weights};

/// Why a model could not be evaluated.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum EvaluateError {
    #[error("{0} is not an operator of random graphs")]
    Unsupported(String),
    #[error("{0} was given operands of shapes that do not fit")]
    Shape(String),
    #[error("input or weight `{0}` is missing or not a matrix of f32")]
    Missing(String),
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The outputs of a model made of the operators of random graphs, by name. Nodes may be in
/// any order.
pub fn evaluate(
    model: &Model,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<BTreeMap<String, Tensor>, EvaluateError> {
    let mut values = all_values(model, inputs)?;
    let outputs = model.outputs().into_iter().map(|output| {
        let value = values.remove(&output.name);
        let value = value.ok_or_else(|| EvaluateError::Missing(output.name.clone()))?;
        Ok((output.name, Tensor::from_slice(&[value.rows, value.columns], &value.elements)?))
    });
    outputs.collect()
}

/// Seeded matrices for all inputs of a random graph, of the size that it declares.
pub fn sample_inputs(model: &Model, seed: u64) -> BTreeMap<String, Tensor> {
    let weights = Weights::new(seed).variant("inputs");
    let init = Init { mean: 0.0, deviation: 1.0 };
    let sample = |input: Value| {
        let dims = match input.dims.as_deref() {
            Some(&[Dim::Fixed(rows), Dim::Fixed(columns)]) => [rows, columns],
            _ => [SIDE, SIDE],
        };
        let matrix = weights.draw(&input.name, &dims, init).expect("a small matrix");
        (input.name, matrix)
    };
    model.inputs().into_iter().map(sample).collect()
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) elements: Vec<f32>,
}

/// Every value of the model by name.
pub(super) fn all_values(
    model: &Model,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<HashMap<String, Matrix>, EvaluateError> {
    let graph = model.graph();
    let mut values = HashMap::new();
    for weight in weights::weights(model) {
        let matrix = Matrix::read(&weight.tensor);
        values.insert(weight.name.clone(), matrix.ok_or(EvaluateError::Missing(weight.name))?);
    }
    for input in model.inputs() {
        let matrix = inputs.get(&input.name).and_then(Matrix::read);
        values.insert(input.name.clone(), matrix.ok_or(EvaluateError::Missing(input.name))?);
    }
    let order = topology::order(graph).expect("a checked model has no cycle");
    for node in order.into_iter().map(|index| &graph.node[index]) {
        if node.op_type == "Constant" {
            continue;
        }
        let operand = |name: &String| {
            values.get(name).cloned().ok_or_else(|| EvaluateError::Missing(name.clone()))
        };
        let operands = node.input.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
        let results = apply(node, &operands)?;
        values.extend(node.output.iter().cloned().zip(results));
    }
    Ok(values)
}

fn apply(node: &NodeProto, operands: &[Matrix]) -> Result<Vec<Matrix>, EvaluateError> {
    let number = |name: &str, default: f32| {
        find(node, name).and_then(|attribute| attribute.f).unwrap_or(default)
    };
    let integer = |name: &str, default: i64| {
        find(node, name).and_then(|attribute| attribute.i).unwrap_or(default)
    };
    // Axes of a matrix, counted from the front or the back.
    let along_rows = |axis: i64| axis.rem_euclid(2) == 0;
    let result = match (node.op_type.as_str(), operands) {
        ("Relu", [x]) => Some(x.map(|v| v.max(0.0))),
        ("Tanh", [x]) => Some(x.map(f32::tanh)),
        ("Sigmoid", [x]) => Some(x.map(|v| 1.0 / (1.0 + (-v).exp()))),
        ("Neg", [x]) => Some(x.map(|v| -v)),
        ("Abs", [x]) => Some(x.map(f32::abs)),
        ("Identity", [x]) => Some(x.clone()),
        ("LeakyRelu", [x]) => {
            let alpha = number("alpha", 0.01);
            Some(x.map(|v| if v < 0.0 { alpha * v } else { v }))
        }
        ("Elu", [x]) => {
            let alpha = number("alpha", 1.0);
            Some(x.map(|v| if v < 0.0 { alpha * v.exp_m1() } else { v }))
        }
        ("HardSigmoid", [x]) => {
            let (alpha, beta) = (number("alpha", 0.2), number("beta", 0.5));
            Some(x.map(|v| (alpha * v + beta).clamp(0.0, 1.0)))
        }
        ("Softmax", [x]) if along_rows(integer("axis", -1)) => {
            Some(x.transpose().softmax().transpose())
        }
        ("Softmax", [x]) => Some(x.softmax()),
        ("Transpose", [x]) => match find(node, "perm") {
            Some(attribute) if attribute.ints == [0, 1] => Some(x.clone()),
            _ => Some(x.transpose()),
        },
        ("Add", [x, y]) => x.zip(y, |v, w| v + w),
        ("Sub", [x, y]) => x.zip(y, |v, w| v - w),
        ("Mul", [x, y]) => x.zip(y, |v, w| v * w),
        ("Max", [x, y]) => x.zip(y, f32::max),
        ("MatMul", [x, y]) => x.product(y),
        ("Gemm", [x, y, z]) => {
            let turned = |m: &Matrix, name| {
                if integer(name, 0) == 0 { m.clone() } else { m.transpose() }
            };
            let (alpha, beta) = (number("alpha", 1.0), number("beta", 1.0));
            turned(x, "transA")
                .product(&turned(y, "transB"))
                .and_then(|product| product.zip(z, |v, w| alpha * v + beta * w))
        }
        ("Concat", [x, y]) if along_rows(integer("axis", 0)) => x.above(y),
        ("Concat", [x, y]) => x.transpose().above(&y.transpose()).map(|both| both.transpose()),
        ("Split", [x]) => {
            let halves = if along_rows(integer("axis", 0)) {
                x.halves()
            } else {
                x.transpose().halves().map(|halves| halves.map(|half| half.transpose()))
            };
            let halves = halves.ok_or_else(|| EvaluateError::Shape(node_label(node)))?;
            return Ok(halves.into());
        }
        _ => return Err(EvaluateError::Unsupported(node_label(node))),
    };
    result.map(|matrix| vec![matrix]).ok_or_else(|| EvaluateError::Shape(node_label(node)))
}

fn find<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

impl Matrix {
    fn read(tensor: &Tensor) -> Option<Matrix> {
        let &[rows, columns] = tensor.dims() else { return None };
        Some(Matrix { rows, columns, elements: tensor.to_vec().ok()? })
    }

    /// The same bits, so that zeros of either sign differ and a `NaN` is itself.
    pub(super) fn same_bits(&self, other: &Matrix) -> bool {
        let bits = |matrix: &Matrix| -> Vec<u32> {
            matrix.elements.iter().map(|element| element.to_bits()).collect()
        };
        self.has_shape_of(other) && bits(self) == bits(other)
    }

    pub(super) fn has_shape_of(&self, other: &Matrix) -> bool {
        (self.rows, self.columns) == (other.rows, other.columns)
    }

    fn map(&self, apply: impl Fn(f32) -> f32) -> Matrix {
        Matrix { elements: self.elements.iter().map(|&v| apply(v)).collect(), ..*self }
    }

    fn zip(&self, other: &Matrix, apply: impl Fn(f32, f32) -> f32) -> Option<Matrix> {
        let pairs = self.elements.iter().zip(&other.elements);
        let elements = pairs.map(|(&v, &w)| apply(v, w)).collect();
        self.has_shape_of(other).then_some(Matrix { elements, ..*self })
    }

    fn transpose(&self) -> Matrix {
        let from = |column: usize| {
            (0..self.rows).map(move |row| self.elements[row * self.columns + column])
        };
        let elements = (0..self.columns).flat_map(from).collect();
        Matrix { rows: self.columns, columns: self.rows, elements }
    }

    fn product(&self, other: &Matrix) -> Option<Matrix> {
        let columns = other.transpose();
        let element = |row: &[f32], column: &[f32]| -> f32 {
            row.iter().zip(column).map(|(v, w)| v * w).sum()
        };
        let mut elements = Vec::with_capacity(self.rows * other.columns);
        for row in self.elements.chunks_exact(self.columns) {
            let columns = columns.elements.chunks_exact(other.rows);
            elements.extend(columns.map(|column| element(row, column)));
        }
        let product = Matrix { rows: self.rows, columns: other.columns, elements };
        (self.columns == other.rows).then_some(product)
    }

    /// Along each row.
    fn softmax(&self) -> Matrix {
        let mut elements = Vec::with_capacity(self.elements.len());
        for row in self.elements.chunks_exact(self.columns) {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = row.iter().map(|v| (v - largest).exp()).sum();
            elements.extend(row.iter().map(|v| (v - largest).exp() / sum));
        }
        Matrix { elements, ..*self }
    }

    fn above(&self, below: &Matrix) -> Option<Matrix> {
        let elements = [self.elements.as_slice(), &below.elements].concat();
        let both = Matrix { rows: self.rows + below.rows, columns: self.columns, elements };
        (self.columns == below.columns).then_some(both)
    }

    fn halves(&self) -> Option<[Matrix; 2]> {
        let rows = self.rows / 2;
        let (upper, lower) = self.elements.split_at(rows * self.columns);
        let half =
            |elements: &[f32]| Matrix { rows, columns: self.columns, elements: elements.to_vec() };
        self.rows.is_multiple_of(2).then(|| [half(upper), half(lower)])
    }
}
