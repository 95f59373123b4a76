//! Matrix products and what is like them.
//!
//! A product over an inner dimension of K takes 2 K operations for each output element.

use std::collections::BTreeMap;

use super::Reason;
use super::node::{Node, Shapes, broadcast, invalid, one, times};
use super::operator::Work::Formula;
use super::operator::{Operator, row};
use super::types::{SAME, Type};
use crate::DataType;

const I32: &[Type] = &[Type::Is(DataType::I32)];

pub(super) const ONNX: &[Operator] = &[
    row("MatMul", SAME, |node| pair(node, 0, 1), Formula(by_inner)),
    row("MatMulInteger", I32, |node| pair(node, 0, 1), Formula(by_inner)),
    row("QLinearMatMul", &[Type::Same(7)], |node| pair(node, 0, 3), Formula(by_inner)),
    row("Gemm", SAME, gemm, Formula(gemm_work)),
    row("Einsum", SAME, einsum, Formula(einsum_work)),
];

pub(super) const MICROSOFT: &[Operator] = &[
    row("FusedMatMul", SAME, |node| pair(node, 0, 1), Formula(by_inner)),
    row("TransposeMatMul", SAME, |node| pair(node, 0, 1), Formula(by_inner)),
    row("FusedMatMulActivation", SAME, |node| pair(node, 0, 1), Formula(by_inner)),
    row("FusedGemm", SAME, gemm, Formula(gemm_work)),
    row("QGemm", OF_QUANTIZED_GEMM, quantized_gemm, Formula(quantized_gemm_work)),
    row("DynamicQuantizeMatMul", SAME, |node| pair(node, 0, 1), Formula(by_inner)),
    row("MatMulIntegerToFloat", &[Type::Same(2)], |node| pair(node, 0, 1), Formula(by_inner)),
    row("MatMulInteger16", I32, |node| pair(node, 0, 1), Formula(by_inner)),
    row("MatMulNBits", SAME, packed, Formula(packed_work)),
    row("MatMulBnb4", SAME, packed, Formula(packed_work)),
];

/// The zero point of the output says its type; without one it is `f32`.
const OF_QUANTIZED_GEMM: &[Type] = &[Type::Rule(|_, input| input(8).or(Some(DataType::F32)))];

/// The product of two inputs, transposed as the fused operators' attributes say.
fn pair(node: &Node<'_>, left: usize, right: usize) -> Shapes {
    let left = operand(node, left, "transA", "transBatchA")?;
    let right = operand(node, right, "transB", "transBatchB")?;
    one(multiplied(&left, &right)?)
}

fn operand(node: &Node<'_>, index: usize, matrix: &str, batch: &str) -> Result<Vec<usize>, Reason> {
    let mut dims = node.dims(index)?.to_vec();
    let rank = dims.len();
    if rank >= 3 && node.flag(batch) {
        dims[..rank - 1].rotate_left(1);
    }
    if rank >= 2 && node.flag(matrix) {
        dims.swap(rank - 2, rank - 1);
    }
    Ok(dims)
}

fn multiplied(left: &[usize], right: &[usize]) -> Result<Vec<usize>, Reason> {
    let wrong = || invalid(format!("{left:?} and {right:?} do not multiply"));
    // A vector is a matrix of one row on the left, of one column on the right.
    let (left_outer, rows, inner) = match left {
        [] => return Err(wrong()),
        [inner] => (&[][..], None, *inner),
        [outer @ .., rows, inner] => (outer, Some(*rows), *inner),
    };
    let (right_outer, height, columns) = match right {
        [] => return Err(wrong()),
        [height] => (&[][..], *height, None),
        [outer @ .., height, columns] => (outer, *height, Some(*columns)),
    };
    if inner != height {
        return Err(wrong());
    }
    let mut dims = broadcast(left_outer, right_outer).map_err(|_| wrong())?;
    dims.extend(rows);
    dims.extend(columns);
    Ok(dims)
}

fn by_inner(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let left = operand(node, 0, "transA", "transBatchA")?;
    Ok(times(dims).saturating_mul(times(&[2, left.last().copied().unwrap_or(1)])))
}

fn gemm(node: &Node<'_>) -> Shapes {
    let (rows, inner) = gemm_side(node, 0, "transA")?;
    let (height, columns) = gemm_side(node, 1, "transB")?;
    if inner != height {
        return Err(invalid(format!("{rows} x {inner} and {height} x {columns} do not multiply")));
    }
    one(vec![rows, columns])
}

fn gemm_side(node: &Node<'_>, index: usize, transposed: &str) -> Result<(usize, usize), Reason> {
    let [rows, columns] = node.ranked(index)?;
    Ok(if node.flag(transposed) { (columns, rows) } else { (rows, columns) })
}

fn gemm_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let (_, inner) = gemm_side(node, 0, "transA")?;
    let bias = usize::from(node.has(2));
    Ok(times(dims).saturating_mul(times(&[2, inner]).saturating_add(bias as u64)))
}

/// Both operands are followed by their scale and zero point.
fn quantized_gemm(node: &Node<'_>) -> Shapes {
    let (rows, _) = gemm_side(node, 0, "transA")?;
    let (_, columns) = gemm_side(node, 3, "transB")?;
    one(vec![rows, columns])
}

fn quantized_gemm_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    let (_, inner) = gemm_side(node, 0, "transA")?;
    Ok(times(dims).saturating_mul(times(&[2, inner])))
}

/// The right operand is packed; attributes K and N say what it was.
fn packed(node: &Node<'_>) -> Shapes {
    let (inner, columns) = (node.attribute_size("K")?, node.attribute_size("N")?);
    let mut dims = node.dims(0)?.to_vec();
    match dims.last_mut() {
        Some(last) if *last == inner => *last = columns,
        _ => return Err(invalid(format!("{dims:?} does not multiply with {inner} x {columns}"))),
    }
    one(dims)
}

fn packed_work(node: &Node<'_>, dims: &[usize]) -> Result<u64, Reason> {
    Ok(times(dims).saturating_mul(times(&[2, node.attribute_size("K")?])))
}

/// An Einstein sum: the size of each letter, and the letters of the output. Dimensions that an
/// ellipsis stands for are negative "letters", counted from the end so that they broadcast.
struct Sum {
    sizes: BTreeMap<i32, usize>,
    output: Vec<i32>,
}

fn einsum(node: &Node<'_>) -> Shapes {
    let sum = Sum::read(node)?;
    let missing = || invalid("the output names a letter that no input has");
    one(sum
        .output
        .iter()
        .map(|letter| sum.sizes.get(letter).copied().ok_or_else(missing))
        .collect::<Result<_, _>>()?)
}

fn einsum_work(node: &Node<'_>, _: &[usize]) -> Result<u64, Reason> {
    let sum = Sum::read(node)?;
    let points = sum.sizes.values().fold(1u64, |all, &size| all.saturating_mul(size as u64));
    let contracts = sum.sizes.len() > sum.output.len();
    let each = node.inputs.len() as u64 - u64::from(!contracts && !node.inputs.is_empty());
    Ok(points.saturating_mul(each))
}

impl Sum {
    fn read(node: &Node<'_>) -> Result<Sum, Reason> {
        let equation = node.attribute_text("equation");
        let equation = equation.ok_or_else(|| invalid("`equation` is missing"))?.replace(' ', "");
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left.to_owned(), Some(right.to_owned())),
            None => (equation, None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != node.inputs.len() {
            return Err(invalid(format!("`{left}` does not name {} inputs", node.inputs.len())));
        }
        let mut sizes: BTreeMap<i32, usize> = BTreeMap::new();
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        let mut widest = 0;
        for (index, term) in terms.iter().enumerate() {
            let dims = node.dims(index)?;
            let hidden = if term.contains("...") {
                dims.len().checked_sub(term.len() - 3)
            } else {
                (dims.len() == term.len()).then_some(0)
            };
            let wrong = || invalid(format!("`{term}` does not describe {dims:?}"));
            let hidden = hidden.ok_or_else(wrong)?;
            widest = widest.max(hidden);
            for (letter, &dim) in letters(term, hidden).into_iter().zip(dims) {
                let size = sizes.entry(letter).or_insert(dim);
                *counts.entry(letter).or_default() += 1;
                match (*size, dim) {
                    (size, dim) if size == dim || dim == 1 => {}
                    (1, dim) => *size = dim,
                    _ => return Err(wrong()),
                }
            }
        }
        let output = match right {
            Some(right) => letters(&right, if right.contains("...") { widest } else { 0 }),
            // Without an arrow: the hidden dimensions, then letters that appear once.
            None => counts
                .into_iter()
                .filter(|&(letter, count)| letter < 0 || count == 1)
                .map(|(letter, _)| letter)
                .collect(),
        };
        Ok(Sum { sizes, output })
    }
}

/// The letters of a term, an ellipsis standing for `hidden` dimensions.
fn letters(term: &str, hidden: usize) -> Vec<i32> {
    let mut found = Vec::new();
    let mut dots = 0;
    for letter in term.chars() {
        if letter != '.' {
            found.push(letter as i32);
        } else {
            dots += 1;
            if dots == 3 {
                found.extend((1..=hidden as i32).rev().map(|position| -position));
            }
        }
    }
    found
}
