//! What running a piece of a model takes, by classes of operators: what a cost model looks at.

use holdfast_graph::cost::Cost;
use serde::{Deserialize, Serialize};

/// Operators that cost alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorClass {
    /// Matrix products.
    Matmul,
    /// Convolutions and pooling.
    Convolution,
    /// Fused attention.
    Attention,
    /// Softmax, normalisation of layers and batches, and reductions.
    Normalisation,
    /// Functions of single elements.
    Elementwise,
    /// Choosing and moving elements.
    Gather,
    /// Loops and branches, recurrent networks, and all that is not known.
    Control,
}

impl OperatorClass {
    /// All of them, in the order in which [`Features::work`] lists them.
    pub const ALL: [OperatorClass; 7] = [
        OperatorClass::Matmul,
        OperatorClass::Convolution,
        OperatorClass::Attention,
        OperatorClass::Normalisation,
        OperatorClass::Elementwise,
        OperatorClass::Gather,
        OperatorClass::Control,
    ];
}

/// What the operators of one class take in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassWork {
    /// Operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
    /// Nodes that run.
    pub nodes: f64,
}

/// What running a piece of a model once takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Features {
    /// By class, in the order of [`OperatorClass::ALL`].
    pub work: [ClassWork; 7],
    /// Rows of the input.
    pub batch: usize,
    /// Length of each row, where it has one; otherwise 1.
    pub sequence: usize,
    /// Bytes that go to the device.
    pub input_bytes: u64,
    /// Bytes that come back.
    pub output_bytes: u64,
    /// Bytes of its weights.
    pub weight_bytes: u64,
    /// Bytes of the values that are there at the worst moment.
    pub peak_activation_bytes: u64,
}

/// What a [`Cost`] does not say of a run: its size, and what crosses the border of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSize {
    /// Rows of the input.
    pub batch: usize,
    /// Length of each row, where it has one; otherwise 1.
    pub sequence: usize,
    /// Bytes that go to the device.
    pub input_bytes: u64,
    /// Bytes that come back.
    pub output_bytes: u64,
    /// Bytes of its weights; those of the cost if it is 0.
    pub weight_bytes: u64,
    /// Bytes of the values at the worst moment; those of the cost if it is 0.
    pub peak_activation_bytes: u64,
}

impl Features {
    /// Sums up the cost of a run by operator class.
    pub fn of(cost: &Cost, size: RunSize) -> Features {
        let mut work = [ClassWork::default(); 7];
        for node in &cost.nodes {
            let class = &mut work[OperatorClass::of(&node.operator).index()];
            class.flops += node.flops.unwrap_or(0) as f64;
            class.bytes += node.bytes_read as f64 + node.bytes_written as f64;
            class.nodes += node.runs as f64;
        }
        let or = |given: u64, counted: u64| if given > 0 { given } else { counted };
        Features {
            work,
            batch: size.batch.max(1),
            sequence: size.sequence.max(1),
            input_bytes: size.input_bytes,
            output_bytes: size.output_bytes,
            weight_bytes: or(size.weight_bytes, cost.weight_bytes),
            peak_activation_bytes: or(size.peak_activation_bytes, cost.peak_activation_bytes),
        }
    }

    /// The work of one class.
    pub fn class(&self, class: OperatorClass) -> &ClassWork {
        &self.work[class.index()]
    }

    /// Operations of all classes.
    pub fn flops(&self) -> f64 {
        self.work.iter().map(|class| class.flops).sum()
    }

    /// Nodes of all classes.
    pub fn nodes(&self) -> f64 {
        self.work.iter().map(|class| class.nodes).sum()
    }

    /// Rows times their length: what most costs grow with.
    pub(crate) fn elements(&self) -> f64 {
        self.batch.max(1) as f64 * self.sequence.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use holdfast_graph::cost::NodeCost;

    use super::*;

    fn node(operator: &str, runs: u64, flops: Option<u64>) -> NodeCost {
        NodeCost {
            node: "n".into(),
            operator: operator.into(),
            runs,
            flops,
            bytes_read: 30,
            bytes_written: 10,
            weight_bytes: 0,
        }
    }

    fn cost(nodes: Vec<NodeCost>) -> Cost {
        Cost {
            nodes,
            flops: 0,
            bytes_moved: 0,
            weight_bytes: 500,
            peak_activation_bytes: 70,
            unknowns: Vec::new(),
        }
    }

    #[test]
    fn sums_up_nodes_by_class() {
        let cost = cost(vec![
            node("MatMul", 1, Some(100)),
            node("FusedMatMul", 2, Some(50)),
            node("Gelu", 1, Some(7)),
        ]);
        let features = Features::of(&cost, RunSize { batch: 2, ..RunSize::default() });
        let matmul = features.class(OperatorClass::Matmul);
        assert_eq!((matmul.flops, matmul.bytes, matmul.nodes), (150.0, 80.0, 3.0));
        assert_eq!(features.flops(), 157.0);
        assert_eq!(features.nodes(), 4.0);
        assert_eq!((features.weight_bytes, features.peak_activation_bytes), (500, 70));
    }

    #[test]
    fn what_is_unknown_counts_as_nothing_and_sizes_are_at_least_one() {
        let features = Features::of(&cost(vec![node("Odd", 1, None)]), RunSize::default());
        assert_eq!(features.class(OperatorClass::Control).flops, 0.0);
        assert_eq!((features.batch, features.sequence), (1, 1));
    }
}
