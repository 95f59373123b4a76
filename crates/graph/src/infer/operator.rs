//! The operators that are known: for each, its types, its shapes and its work, in one row.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::node::{Node, Shapes};
use super::{Reason, types::Type};
use super::{
    arrange, attention, blocked, convolve, create, elementwise, normalize, pick, product, quantize,
    recur, reduce, resize, signal,
};

/// One operator of one domain.
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// The type of each output; the last one holds for all that follow.
    pub(crate) types: &'static [Type],
    pub(crate) shapes: fn(&Node<'_>) -> Shapes,
    pub(crate) work: Work,
}

/// What running an operator takes.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// The output is the first input under another shape.
    View,
    /// Follows from shapes alone: no contents are read.
    Free,
    /// Reads and writes, computes nothing.
    Moves,
    /// Reads only as much of its first input as it writes, computes nothing.
    Picks,
    /// This many operations for each element of the first output.
    PerOutput(u64),
    /// This many operations for each element of the first input.
    PerInput(u64),
    /// Operations by a formula of the node and its first output's dimensions.
    Formula(fn(&Node<'_>, &[usize]) -> Result<u64, Reason>),
}

pub(crate) const fn row(
    name: &'static str,
    types: &'static [Type],
    shapes: fn(&Node<'_>) -> Shapes,
    work: Work,
) -> Operator {
    Operator { name, types, shapes, work }
}

const TABLES: &[(&str, &[&[Operator]])] = &[
    (
        "",
        &[
            arrange::ONNX,
            attention::ONNX,
            convolve::ONNX,
            create::ONNX,
            elementwise::ONNX,
            normalize::ONNX,
            pick::ONNX,
            product::ONNX,
            quantize::ONNX,
            recur::ONNX,
            reduce::ONNX,
            resize::ONNX,
            signal::ONNX,
        ],
    ),
    (
        "com.microsoft",
        &[
            attention::MICROSOFT,
            convolve::MICROSOFT,
            elementwise::MICROSOFT,
            normalize::MICROSOFT,
            product::MICROSOFT,
            quantize::MICROSOFT,
            recur::MICROSOFT,
        ],
    ),
    ("com.microsoft.nchwc", &[blocked::NCHWC]),
];

/// The row of an operator, if it is known.
pub(crate) fn find(domain: &str, name: &str) -> Option<&'static Operator> {
    static ROWS: LazyLock<HashMap<(&str, &str), &Operator>> =
        LazyLock::new(|| all().map(|(domain, row)| ((domain, row.name), row)).collect());
    let domain = if domain == "ai.onnx" { "" } else { domain };
    ROWS.get(&(domain, name)).copied()
}

/// Every known operator with its domain.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Operator)> {
    let rows = |(domain, tables): &'static (&'static str, &'static [&'static [Operator]])| {
        tables.iter().flat_map(|table| table.iter()).map(move |row| (*domain, row))
    };
    TABLES.iter().flat_map(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_one_row() {
        let mut seen = std::collections::HashSet::new();
        for (domain, row) in all() {
            assert!(seen.insert((domain, row.name)), "{domain}::{} twice", row.name);
            assert!(!row.types.is_empty(), "{} has no types", row.name);
        }
    }
}
